import math
import weakref

import pytest
import torch
from hypothesis import given
from torch.utils.checkpoint import checkpoint

from qtool.errors import DtypeError, RangeError
from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.qparams import affine_qparams
from qtool.numerics.quantize import dequantize, quantize
from tests.numerics.strategies import FLOAT_DTYPES, SIZES, affine_cases, channel_cases

SCALE = torch.tensor(0.1)
ZERO_POINT = torch.tensor(128, dtype=torch.int32)


def saved_bytes(run):
    """Return the bytes that autograd keeps for backward while `run` runs."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(sizes)


@given(affine_cases())
def test_values_are_dequantized_codes(case):
    x, scale, zero_point, qmin, qmax = case
    y = fake_quantize(x, scale, zero_point, qmin, qmax)
    codes = quantize(x, scale, zero_point, qmin, qmax, dtype=torch.int32)
    assert torch.equal(y, dequantize(codes, scale, zero_point))


@given(affine_cases())
def test_values_and_gradient_equal_aten(case):
    x, scale, zero_point, qmin, qmax = case
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = fake_quantize(ours, scale, zero_point, qmin, qmax)
    expected = torch.fake_quantize_per_tensor_affine(theirs, scale, zero_point, qmin, qmax)
    assert torch.equal(y, expected)
    grad = torch.linspace(1.0, 2.0, x.numel())
    y.backward(grad)
    expected.backward(grad)
    assert torch.equal(ours.grad, theirs.grad)


@given(channel_cases())
def test_channel_values_and_gradient_equal_aten_and_each_slice(case):
    x, scale, zero_point, qmin, qmax, axis = case
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = fake_quantize(ours, scale, zero_point, qmin, qmax, axis=axis)
    expected = torch.fake_quantize_per_channel_affine(theirs, scale, zero_point, axis % x.dim(), qmin, qmax)
    assert torch.equal(y, expected)
    y.sum().backward()
    expected.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
    for channel in range(scale.numel()):
        alone = fake_quantize(x.select(axis, channel), scale[channel], zero_point[channel], qmin, qmax)
        assert torch.equal(y.detach().select(axis, channel), alone)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_any_dtype_and_size_equals_aten(dtype, size):
    x = torch.linspace(-20.0, 20.0, size).to(dtype)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y = fake_quantize(ours, SCALE, ZERO_POINT, 0, 255)
    expected = torch.fake_quantize_per_tensor_affine(theirs, SCALE, ZERO_POINT, 0, 255)
    assert y.dtype == dtype
    assert torch.equal(y, expected)
    y.sum().backward()
    expected.sum().backward()
    assert ours.grad.dtype == dtype
    assert torch.equal(ours.grad, theirs.grad)


@given(affine_cases())
def test_idempotent_monotone_and_gradient_one_inside(case):
    x, scale, zero_point, qmin, qmax = case
    x = x.sort().values.requires_grad_()
    y = fake_quantize(x, scale, zero_point, qmin, qmax)
    assert torch.equal(fake_quantize(y.detach(), scale, zero_point, qmin, qmax), y.detach())
    assert (y.detach().diff() >= 0).all()
    y.sum().backward()
    unclamped = (x.detach() * scale.reciprocal()).round() + zero_point
    assert torch.equal(x.grad, ((unclamped >= qmin) & (unclamped <= qmax)).float())


def test_same_values_with_and_without_gradient():
    x = torch.randn(1000) * 20
    with_grad = fake_quantize(x.clone().requires_grad_(), SCALE, ZERO_POINT, 0, 255)
    assert torch.equal(with_grad.detach(), fake_quantize(x, SCALE, ZERO_POINT, 0, 255))
    with torch.no_grad():
        assert not fake_quantize(x.clone().requires_grad_(), SCALE, ZERO_POINT, 0, 255).requires_grad


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_case_20_nan_stays_infinities_clamp_and_gradient_is_zero(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.0, -1.0] * 9, dtype=dtype, requires_grad=True)
    y = fake_quantize(x, SCALE, torch.tensor(0, dtype=torch.int32), -128, 127)
    # An infinite gradient where x was clamped must not become NaN.
    y.backward(torch.tensor([math.inf, math.inf, math.nan, 1.0, 1.0] * 9, dtype=dtype))
    expected = torch.tensor([math.nan, 12.7, -12.8, 1.0, -1.0] * 9).to(dtype)
    assert torch.allclose(y.detach(), expected, rtol=1e-6 if dtype.itemsize > 2 else 1e-2, equal_nan=True)
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0] * 9


def test_case_24_zero_maps_to_zero_with_gradient_one_at_the_smallest_scale():
    qparams = affine_qparams(-1e-40, 1e-40, -128, 127)
    x = torch.tensor([0.0, -0.0], requires_grad=True)
    y = fake_quantize(x, *qparams, -128, 127)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0]
    assert x.grad.tolist() == [1.0, 1.0]


def test_few_clamped_elements_are_kept_as_indices():
    x = torch.linspace(-1.0, 1.0, 1000)
    x[[3, 500]] = 99.0
    x.requires_grad_()
    kept = saved_bytes(lambda: fake_quantize(x, SCALE, ZERO_POINT, 0, 255).sum().backward())
    assert kept == 2 * 4
    assert x.grad.tolist() == [float(index not in (3, 500)) for index in range(1000)]


@pytest.mark.parametrize("largest", [1.0, 14.0, 99.0])  # nothing, few and many are clamped
def test_torch_func_grad_is_the_gradient(largest):
    x = torch.linspace(-largest, largest, 1000)

    def loss(x):
        return (fake_quantize(x * 1.0, SCALE, ZERO_POINT, 0, 255) ** 2).sum()

    leaf = x.clone().requires_grad_()
    loss(leaf).backward()
    assert torch.equal(torch.func.grad(loss)(x), leaf.grad)


@pytest.mark.parametrize("largest", [1.0, 13.5, 99.0])
def test_a_graph_that_is_kept_gives_the_same_gradient_again(largest):
    x = torch.linspace(-largest, largest, 1000, requires_grad=True)
    y = fake_quantize(x, SCALE, ZERO_POINT, 0, 255)
    first, again = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, again)


def test_saved_tensors_can_move_elsewhere_and_back():
    x = torch.linspace(-99.0, 99.0, 1000, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = fake_quantize(x, SCALE, ZERO_POINT, 0, 255)
    y.sum().backward()
    steps = (x.detach() * 10).round() + 128
    assert torch.equal(x.grad, (steps.clamp(0, 255) == steps).float())


@pytest.mark.parametrize("size", SIZES)
def test_case_23_backward_of_any_size_keeps_a_bit_an_element(size):
    x = torch.full((size,), 99.0, requires_grad=True)
    kept = saved_bytes(lambda: fake_quantize(x, SCALE, ZERO_POINT, 0, 255).sum().backward())
    assert kept == math.ceil(size / 8)
    assert x.grad.tolist() == [0.0] * size


def test_nothing_is_kept_when_nothing_is_clamped():
    x = torch.linspace(-1.0, 1.0, 1000, requires_grad=True)
    assert saved_bytes(lambda: fake_quantize(x, SCALE, ZERO_POINT, 0, 255).sum().backward()) == 0
    assert (x.grad == 1.0).all()


def test_input_is_freed_before_backward():
    leaf = torch.randn(1000, requires_grad=True)
    hidden = leaf * 30.0
    alive = weakref.ref(hidden)
    y = fake_quantize(hidden, SCALE, ZERO_POINT, 0, 255)
    del hidden
    assert alive() is None
    y.sum().backward()
    assert 0 < (leaf.grad == 0.0).sum() < 1000


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.permute(3, 1, 0, 2),
        lambda x: x[:, :, ::2, 1:],
        lambda x: x[:, :1].expand(-1, 6, -1, -1),
        lambda x: x[0, 0, 0, 0],
    ],
    ids=["contiguous", "channels_last", "permuted", "strided", "expanded", "scalar"],
)
def test_any_layout_gives_the_same_values_and_gradient(layout):
    x = layout(torch.randn(2, 6, 5, 7) * 12)
    plain = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    x = x.detach().requires_grad_()
    grad = torch.randn(plain.shape)
    y, expected = (fake_quantize(each, SCALE, ZERO_POINT, 0, 255) for each in (x, plain))
    y.backward(grad)
    expected.backward(grad)
    assert torch.equal(y, expected)
    assert torch.equal(x.grad, plain.grad)


def test_memory_format_is_kept():
    x = torch.randn(2, 6, 5, 7).to(memory_format=torch.channels_last).requires_grad_()
    y = fake_quantize(x, SCALE.expand(6), ZERO_POINT.expand(6), 0, 255, axis=-3)
    assert y.stride() == x.stride()


def test_second_derivative_is_that_of_a_step():
    x = torch.tensor([1.0, 99.0], requires_grad=True)
    (first,) = torch.autograd.grad((fake_quantize(x, SCALE, ZERO_POINT, 0, 255) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [2.0, 0.0]


@pytest.mark.parametrize("largest", [1.0, 13.5, 99.0])
def test_second_derivative_whatever_the_mask_is_kept_as(largest):
    x = torch.linspace(-largest, largest, 1000, requires_grad=True)
    (first,) = torch.autograd.grad((fake_quantize(x, SCALE, ZERO_POINT, 0, 255) ** 3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    y = fake_quantize(x.detach(), SCALE, ZERO_POINT, 0, 255)
    torch.testing.assert_close(first.detach(), 3 * y**2 * (first != 0))
    torch.testing.assert_close(second, 6 * y * (second != 0))
    assert torch.equal(first != 0, second != 0)


@pytest.mark.parametrize("size", [1e-3, 1e3])  # nothing is clamped and nothing kept; a mask is kept
def test_under_checkpoint_and_autocast(size):
    x = (torch.randn(4, 8) * size).requires_grad_()
    weight = torch.randn(8, 8)

    def forward(x):
        return fake_quantize(x @ weight, SCALE, ZERO_POINT, 0, 255)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = forward(x)
        again = checkpoint(forward, x, use_reentrant=False)
    assert plain.dtype == torch.bfloat16
    assert torch.equal(plain, again)
    (grad,) = torch.autograd.grad(plain.sum(), x)
    (grad_again,) = torch.autograd.grad(again.sum(), x)
    assert torch.equal(grad, grad_again)


def test_integers_and_wrong_channel_counts_are_refused():
    with pytest.raises(DtypeError, match="int64"):
        fake_quantize(torch.arange(4), SCALE, ZERO_POINT, 0, 255)
    with pytest.raises(RangeError, match="3 scales for 4 channels"):
        fake_quantize(torch.zeros(4, 2), SCALE.expand(3), ZERO_POINT.expand(3), 0, 255, axis=0)


@pytest.mark.slow
def test_compiled_without_a_break_it_is_the_same():
    def run(function, x):
        x = (x * 30.0).requires_grad_()
        y = function(x, SCALE, ZERO_POINT, 0, 255)
        y.square().sum().backward()
        return y.detach(), x.grad

    compiled = torch.compile(fake_quantize, backend="aot_eager", fullgraph=True)
    for x in (torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)):
        for ours, expected in zip(run(compiled, x), run(fake_quantize, x), strict=True):
            assert torch.equal(ours, expected)
