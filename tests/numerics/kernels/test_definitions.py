"""What the ATen definitions compute, against float64 and textbook formulas."""

import torch

from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels.normalize import normalize_grad, normalize_quantize, normalize_sums
from qtool.numerics.kernels.statistics import channel_statistics

GRID = Grid(torch.tensor(0.05), torch.tensor(3, dtype=torch.int32), 0, 127)
X = torch.randn(3, 5, 9, 7, generator=torch.Generator().manual_seed(0)) * 2 + 1


def test_statistics_are_those_of_batch_norm():
    for x in (X, X.to(memory_format=torch.channels_last), X[:, :, 0, 0], X.double(), X[..., ::2]):
        mean, variance, low, high = channel_statistics(x)
        dims = [dim for dim in range(x.dim()) if dim != 1]
        torch.testing.assert_close(mean, x.double().mean(dims), rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(variance, x.double().var(dims, correction=0), rtol=1e-13, atol=0)
        assert torch.equal(low.double(), x.float().amin(dims).double())
        assert torch.equal(high.double(), x.float().amax(dims).double())


def batch_norm_step(x, gamma, beta, grad, bounds, grid):
    """Return (values, dx) of batch norm in train mode through the kernels, as a layer is to use them."""
    mean, variance, _, _ = channel_statistics(x)
    rstd = (variance + 1e-5).rsqrt()
    factor = (gamma.double() * rstd).to(x.dtype)
    shift = (beta.double() - mean * gamma.double() * rstd).to(x.dtype)
    values = normalize_quantize(x, factor, shift, bounds, grid).values
    total, product = normalize_sums(x, grad, factor, shift, mean, bounds, grid)
    count = x.numel() // x.shape[1]
    b = -factor.double() * rstd**2 * product / count
    k = -factor.double() * total / count
    dx = normalize_grad(x, grad, factor, shift, bounds, grid, (factor, mean.to(x.dtype), b.to(x.dtype), k.to(x.dtype)))
    return values, dx


def test_batch_norm_and_relu_and_fake_quantize_is_the_textbook_in_float64():
    gamma, beta = torch.tensor([1.0, -0.5, 1e-3, 2.0, 0.0]).double(), torch.linspace(-1, 1, 5).double()
    for layout in (torch.contiguous_format, torch.channels_last):
        x = X.double().to(memory_format=layout).requires_grad_()
        grad = torch.randn(X.shape, dtype=torch.float64)
        normed = torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True).clamp(0.0, 6.0)
        expected = torch.fake_quantize_per_tensor_affine(normed, GRID.scale, GRID.zero_point, 0, 127)
        expected.backward(grad)
        values, dx = batch_norm_step(x.detach(), gamma, beta, grad, Bounds(0.0, 6.0), GRID)
        torch.testing.assert_close(values, expected.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(dx, x.grad, rtol=1e-9, atol=1e-9)


def test_frozen_statistics_and_no_grid():
    factor, shift = torch.full((5,), 0.5), torch.linspace(-1, 1, 5)
    y = X * 0.5 + shift.view(-1, 1, 1)
    quantized = normalize_quantize(X, factor, shift, NO_BOUNDS, None)
    assert torch.equal(quantized.values, y)
    assert quantized.codes is None
    assert (quantized.low, quantized.high) == (y.min(), y.max())
    dx = normalize_grad(X, torch.ones_like(X), factor, shift, Bounds(0.0), None, (factor, None, None, None))
    assert torch.equal(dx, (y > 0) * 0.5)
