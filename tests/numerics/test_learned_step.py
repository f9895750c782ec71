"""The gradients of learned step size against the paper's formula in float64, and against differences."""

import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from torch.utils.checkpoint import checkpoint

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.learned_step import RESIDUAL_STEPS, fake_quantize_learned, scale_gradient_factor
from tests.numerics.strategies import FLOAT_DTYPES, SIZES, affine_cases, channel_cases

SCALE = torch.tensor(0.1)
ZERO_POINT = torch.tensor(128, dtype=torch.int32)


def reference(x, scale, zero_point, qmin, qmax, axis=None):
    """Equation 3 of the paper: e, the mask, and g, in numpy's float64; codes are decided by the float32 product."""

    def spread(values):
        values = values.numpy()
        if axis is None:
            return values
        shape = [1] * x.dim()
        shape[axis] = -1
        return values.reshape(shape)

    inverse, zero = np.float32(1.0) / spread(scale), spread(zero_point).astype(np.float64)
    v = x.detach().numpy() * inverse
    rounded = np.rint(v)
    codes = rounded + zero.astype(v.dtype)
    e = np.where(codes < qmin, qmin - zero, np.where(codes > qmax, qmax - zero, rounded - v.astype(np.float64)))
    longer = np.maximum(qmax - zero_point.numpy(), zero_point.numpy() - qmin).astype(np.float64)
    factor = 1 / np.sqrt(longer * max(x.numel() // scale.numel(), 1))
    passes = (codes >= qmin) & (codes <= qmax)
    return torch.as_tensor(e), torch.as_tensor(passes), torch.as_tensor(factor)


def expected_gradient(grad, e, factor, axis=None):
    products = grad.double() * e
    if axis is None:
        return products.sum() * factor
    return products.movedim(axis, 0).reshape(factor.numel(), -1).sum(1) * factor


def gradients(x, scale, zero_point, qmin, qmax, grad, axis=None, *, is_leaf):
    """Values and gradients, with `x` as a parameter, or as the result of something before it."""
    x, scale = x.clone().requires_grad_(), scale.clone().requires_grad_()
    given = x if is_leaf else x.view(x.shape)
    y = fake_quantize_learned(given, scale, zero_point, qmin, qmax, axis=axis)
    y.backward(grad)
    return y.detach(), x.grad, scale.grad


def check(case, axis=None):
    x, scale, zero_point, qmin, qmax = case
    grad = torch.linspace(-1.0, 2.0, x.numel()).view(x.shape)
    e, passes, factor = reference(x, scale, zero_point, qmin, qmax, axis)
    exact = expected_gradient(grad, e, factor, axis)
    room = expected_gradient(grad.abs(), e.abs() + 1, factor, axis) * 2**-22 + 1e-12  # sums of float32 products
    byte = expected_gradient(grad.abs(), passes / (2 * RESIDUAL_STEPS), factor, axis)
    for is_leaf, bound in ((True, room), (False, room + byte)):
        y, dx, dscale = gradients(x, scale, zero_point, qmin, qmax, grad, axis, is_leaf=is_leaf)
        assert torch.equal(y, fake_quantize(x, scale, zero_point, qmin, qmax, axis=axis))
        assert torch.equal(dx, torch.where(passes, grad, 0.0))
        assert dscale.dtype == torch.float32
        assert dscale.shape == scale.shape
        assert ((dscale.double() - exact).abs() <= bound).all()


@given(affine_cases())
def test_gradients_are_the_papers(case):
    check(case)


@given(channel_cases())
def test_gradients_per_channel_are_the_papers(case):
    *rest, axis = case
    check(rest, axis)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gradient_of_the_scale_is_the_slope_of_what_rounding_stands_for(symmetric):
    """With the rounding error held, y = scale * (x / scale + e): the slope by differences, no value changing sides."""
    qmin, qmax, zero = (-127, 127, 0) if symmetric else (0, 255, 77)
    torch.manual_seed(0)
    x, scale = torch.randn(500, dtype=torch.float64), torch.tensor(1 / 64)
    zero_point = torch.tensor(zero, dtype=torch.int32)
    v = x / scale.double()
    e = v.round() - v

    codes = v.round() + zero
    below, above = codes < qmin, codes > qmax

    def y(step):
        changed = scale.double() + step
        inside = x / changed + e
        return torch.where(below, float(qmin - zero), torch.where(above, float(qmax - zero), inside)) * changed

    moved = (y(1e-7) - y(-1e-7)) / 2e-7
    assert 10 < int((below | above).sum()) < 490
    grad = torch.linspace(-1.0, 2.0, 500, dtype=torch.float64)
    _, _, dscale = gradients(x, scale, zero_point, qmin, qmax, grad, is_leaf=True)
    factor = 1 / math.sqrt(500 * max(qmax - zero, zero - qmin))
    assert float(dscale) == pytest.approx(float((grad * moved).sum()) * factor, rel=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("is_leaf", [True, False])
def test_any_dtype_and_size(dtype, size, is_leaf):
    x, grad = torch.linspace(-20.0, 20.0, size).to(dtype), torch.ones(size, dtype=dtype)
    y, dx, dscale = gradients(x, SCALE, ZERO_POINT, 0, 255, grad, is_leaf=is_leaf)
    assert torch.equal(y, fake_quantize(x, SCALE, ZERO_POINT, 0, 255))
    assert dx.dtype == dtype
    e, passes, factor = reference(x.float(), SCALE, ZERO_POINT, 0, 255)
    assert torch.equal(dx, passes.to(dtype))
    assert dscale.dtype == torch.float32
    assert float(dscale) == pytest.approx(float(e.sum() * factor), abs=float(factor) * (size / 504 + 1e-3))


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.permute(3, 1, 0, 2),
        lambda x: x[:, :, ::2, 1:],
        lambda x: x[:, :1].expand(-1, 6, -1, -1),
    ],
    ids=["channels_last", "permuted", "strided", "expanded"],
)
@pytest.mark.parametrize("axis", [None, 1, -3])
def test_layout_does_not_matter(layout, axis):
    torch.manual_seed(0)
    x = layout(torch.randn(2, 6, 5, 7) * 12)
    scale = SCALE if axis is None else SCALE.expand(x.shape[axis])
    zero_point = ZERO_POINT if axis is None else ZERO_POINT.expand(x.shape[axis])
    results = []
    for laid_out in (x, x.clone(memory_format=torch.contiguous_format)):
        leaf = laid_out.detach().requires_grad_()
        s = scale.clone().requires_grad_()
        y = fake_quantize_learned(leaf.view_as(leaf), s, zero_point, 0, 255, axis=axis)
        (y * torch.arange(x.numel()).view(x.shape)).sum().backward()
        results.append((y.detach(), leaf.grad, s.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("is_leaf", [True, False])
def test_nan_and_infinity(is_leaf):
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.04])
    grad = torch.tensor([math.inf, 1.0, 2.0, 1.0])  # what flows into a NaN must not spread
    y, dx, dscale = gradients(x, SCALE, ZERO_POINT, 0, 255, grad, is_leaf=is_leaf)
    assert (
        torch.equal(
            y,
            fake_quantize(x, SCALE, ZERO_POINT, 0, 255),
        )
        or y[0].isnan()
    )
    torch.testing.assert_close(y, torch.tensor([math.nan, 12.7, -12.8, 1.0]), equal_nan=True)
    assert dx.tolist() == [0.0, 0.0, 0.0, 1.0]
    factor = float(scale_gradient_factor(ZERO_POINT, 0, 255, 4))
    assert float(dscale) == pytest.approx((127 - 2 * 128 - 0.4) * factor, rel=1e-4)


def test_a_byte_an_element_is_kept_and_the_input_is_free():
    leaf = torch.randn(1001, requires_grad=True)
    hidden = leaf * 30.0
    alive, kept = weakref.ref(hidden), []
    scale = SCALE.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        y = fake_quantize_learned(hidden, scale, ZERO_POINT, 0, 255)
    assert sum(kept) == 1001 + scale.nbytes + ZERO_POINT.nbytes
    del hidden
    assert alive() is None
    y.sum().backward()
    assert 0 < int((leaf.grad == 0).sum()) < 1001


def test_of_a_parameter_nothing_is_kept_but_itself():
    weight, scale, kept = torch.randn(64, requires_grad=True), SCALE.clone().requires_grad_(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.data_ptr()) or t, lambda t: t):
        fake_quantize_learned(weight, scale, ZERO_POINT, 0, 255)
    assert set(kept) == {t.data_ptr() for t in (weight, scale, ZERO_POINT)}


def test_a_parameter_that_changed_before_backward_is_an_error():
    weight, scale = torch.randn(64, requires_grad=True), SCALE.clone().requires_grad_()
    y = fake_quantize_learned(weight, scale, ZERO_POINT, 0, 255)
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_only_what_is_asked_for_is_computed():
    x, scale = torch.randn(8), SCALE.clone().requires_grad_()
    fake_quantize_learned(x, scale, ZERO_POINT, 0, 255).sum().backward()
    assert scale.grad is not None
    x.requires_grad_()
    y = fake_quantize_learned(x, SCALE, ZERO_POINT, 0, 255)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(8))
    with torch.no_grad():
        assert not fake_quantize_learned(x, scale, ZERO_POINT, 0, 255).requires_grad


@pytest.mark.parametrize("loss", [lambda y: y.square().sum(), torch.sum])
def test_a_second_derivative_is_an_error(loss):
    """Also where the incoming gradient is a constant, and only what was saved could be differentiated."""
    x, scale = torch.randn(8, requires_grad=True), SCALE.clone().requires_grad_()
    y = fake_quantize_learned(x, scale, ZERO_POINT, 0, 255)
    (first,) = torch.autograd.grad(loss(y), scale, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of gradients is not defined"):
        first.backward()


def test_under_checkpoint_and_torch_func():
    torch.manual_seed(0)
    x, scale = torch.randn(4, 8, requires_grad=True), SCALE.clone().requires_grad_()

    def forward(x, scale):
        return fake_quantize_learned(x * 9, scale, ZERO_POINT, 0, 255).square().sum()

    plain = torch.autograd.grad(forward(x, scale), (x, scale))
    again = torch.autograd.grad(checkpoint(forward, x, scale, use_reentrant=False), (x, scale))
    functional = torch.func.grad(forward, argnums=(0, 1))(x.detach(), scale.detach())
    for one, other, third in zip(plain, again, functional, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


def test_the_number_of_elements_may_be_given():
    x, scale = torch.randn(100), SCALE.clone().requires_grad_()
    for count in (100, 25):
        fake_quantize_learned(x, scale, ZERO_POINT, 0, 255, num_elements=count).sum().backward()
    one = scale.grad.clone()
    scale.grad = None
    fake_quantize_learned(x, scale, ZERO_POINT, 0, 255).sum().backward()
    assert float(one) == pytest.approx(3 * float(scale.grad))
