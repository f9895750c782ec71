"""What holds for every input of `fake_quantize`, against the definition written in float64."""

import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.checkpoint import checkpoint

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.qparams import affine_qparams, symmetric_qparams
from tests.numerics.strategies import FLOAT_DTYPES

DTYPES = st.sampled_from(FLOAT_DTYPES)
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.float64: 2.0**-24}
"""Half the distance from 1 to the next number: values of codes are float32, also for float64 input."""


@st.composite
def bit_ranges(draw):
    """Draw (qmin, qmax) of 2 to 8 bits, signed or not, the signed one with or without its lowest code."""
    bits, narrow = draw(st.integers(2, 8)), draw(st.booleans())
    if draw(st.booleans()):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1


@st.composite
def layouts(draw):
    """Draw (x, axis): a tensor of some dtype and layout, dense or not, its axis None, positive or negative."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9))
    values = draw(hnp.arrays(np.float32, shape, elements=st.floats(-300, 300, width=32)))
    x = torch.from_numpy(values).to(draw(DTYPES))
    kind = draw(st.sampled_from(["contiguous", "channels_last", "permuted", "sliced", "expanded", "chunked"]))
    if kind == "channels_last" and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    elif kind == "permuted":
        x = x.permute(draw(st.permutations(range(x.dim()))))
    elif kind == "sliced":
        x = x[..., ::2]
    elif kind == "expanded":
        x = x[:1].expand(x.shape)
    elif kind == "chunked":
        x = x.chunk(2, dim=-1)[-1]
    axis = draw(st.none() | st.integers(-x.dim(), x.dim() - 1))
    return x, axis


@st.composite
def cases(draw):
    """Draw (x, scale, zero_point, qmin, qmax, axis), symmetric or affine, as an observer would choose them."""
    x, axis = draw(layouts())
    qmin, qmax = draw(bit_ranges())
    count = 1 if axis is None else x.shape[axis]
    ends = np.array([[draw(st.floats(-200, 200, width=32)) for _ in range(2)] for _ in range(count)]).reshape(-1, 2)
    low, high = torch.from_numpy(ends.min(1)), torch.from_numpy(ends.max(1))
    if axis is None:
        low, high = low[0], high[0]
    if draw(st.booleans()):
        qparams = symmetric_qparams(torch.maximum(low.abs(), high.abs()), qmin, qmax)
    else:
        qparams = affine_qparams(low, high, qmin, qmax)
    return x, *qparams, qmin, qmax, axis


def spread(values, x, axis):
    if axis is None:
        return values.double()
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.double().view(shape)


def reference(x, scale, zero_point, qmin, qmax, axis):
    """Return the values in float64, and the unclamped codes; v is rounded to float32 as the definition says."""
    v = x.double() * spread(scale.reciprocal(), x, axis)
    v = v if x.dtype is torch.float64 else v.float().double()
    codes = v.round() + spread(zero_point, x, axis)
    return (codes.clamp(qmin, qmax) - spread(zero_point, x, axis)) * spread(scale, x, axis), codes


def run(case):
    x, scale, zero_point, qmin, qmax, axis = case
    leaf = x.detach().requires_grad_()
    y = fake_quantize(leaf, scale, zero_point, qmin, qmax, axis=axis)
    return leaf, y


@given(cases())
def test_values_are_those_of_the_definition_rounded_once(case):
    x, scale, zero_point, qmin, qmax, axis = case
    expected, _ = reference(*case)
    y = fake_quantize(x, scale, zero_point, qmin, qmax, axis=axis)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert torch.equal(y, expected.float().to(x.dtype))


@given(cases())
def test_the_gradient_is_one_where_nothing_was_clamped_and_zero_elsewhere(case):
    leaf, y = run(case)
    _, codes = reference(*case)
    y.sum().backward()
    assert leaf.grad.dtype == leaf.dtype
    assert torch.equal(leaf.grad, ((codes >= case[3]) & (codes <= case[4])).to(leaf.dtype))


@given(cases())
def test_once_more_changes_nothing(case):
    x, scale, zero_point, qmin, qmax, axis = case
    y = fake_quantize(x, scale, zero_point, qmin, qmax, axis=axis)
    # A value with fewer bits than its code may lie nearer to another code: then it is not on the grid.
    on_grid = y.double() == reference(*case)[0]
    again = fake_quantize(y, scale, zero_point, qmin, qmax, axis=axis)
    assert torch.equal(again[on_grid], y[on_grid])
    if x.dtype in (torch.float32, torch.float64):
        assert torch.equal(again, y)


@given(cases())
def test_the_order_is_kept_within_a_channel(case):
    x, scale, zero_point, qmin, qmax, axis = case
    channels = [x] if axis is None else list(x.unbind(axis))
    for channel, one, zero in zip(channels, scale.view(-1), zero_point.view(-1), strict=True):
        y = fake_quantize(channel.flatten().sort().values, one, zero, qmin, qmax)
        assert (y.diff() >= 0).all()


@given(cases())
def test_zero_is_exact_with_gradient_one(case):
    x, *rest, axis = case
    leaf, y = run((torch.zeros_like(x), *rest, axis))
    y.sum().backward()
    assert (y == 0).all()
    assert (leaf.grad == 1).all()


@given(cases())
def test_the_error_is_at_most_half_a_step_in_range(case):
    x, scale, zero_point, qmin, qmax, axis = case
    y = fake_quantize(x, scale, zero_point, qmin, qmax, axis=axis).double()
    _, codes = reference(*case)
    step, inside = spread(scale, x, axis), (codes >= qmin) & (codes <= qmax)
    # v has a relative error of 2^-23 and is at most 256; the value is rounded to the dtype of x once more.
    room = step * (0.5 + 256 * 2.0**-22) + y.abs() * UNIT[x.dtype]
    assert ((y - x.double()).abs() <= room)[inside].all()


@given(cases())
def test_case_39_no_layout_changes_a_value_or_a_gradient(case):
    x, *rest = case
    grad = torch.linspace(-2.0, 3.0, x.numel()).view(x.shape).to(x.dtype)
    found = []
    for laid_out in (x, x.clone(memory_format=torch.contiguous_format)):
        leaf, y = run((laid_out, *rest))
        y.backward(grad)
        found.append((y.detach(), leaf.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


# --- case 38


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_case_38_a_narrow_dtype_is_the_float32_computation_rounded_once(dtype, axis):
    x = (torch.randn(6, 6, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    ends = torch.linspace(1.0, 3.0, 6) if axis is not None else torch.tensor(2.0)
    qparams = affine_qparams(-ends, ends * 2, 0, 255)
    narrow, wide = x.clone().requires_grad_(), x.float().requires_grad_()
    y, expected = (fake_quantize(each, *qparams, 0, 255, axis=axis) for each in (narrow, wide))
    assert y.dtype is dtype
    assert torch.equal(y, expected.to(dtype))
    y.sum().backward(), expected.sum().backward()
    assert narrow.grad.dtype is dtype
    assert torch.equal(narrow.grad, wide.grad.to(dtype))


def test_case_38_the_largest_float16_clamps():
    x = torch.tensor([60000.0, -60000.0, 65504.0], dtype=torch.float16)
    y = fake_quantize(x, torch.tensor(1e-3), torch.tensor(0, dtype=torch.int32), -128, 127)
    assert torch.equal(y, torch.tensor([0.127, -0.128, 0.127]).half())


# --- cases 23, 28, 39


def half_clamped(size):
    """Values of which every second one is clamped, so that no list of them is shorter than a bit an element."""
    return torch.where(torch.arange(size) % 2 == 0, 99.0, 1.0)


SCALE, ZERO_POINT = torch.tensor(0.1), torch.tensor(128, dtype=torch.int32)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1001])
def test_case_23_39_a_bit_an_element_is_kept_and_the_input_is_free(size):
    leaf, kept = half_clamped(size).requires_grad_(), []
    hidden = leaf * 1.0
    alive = weakref.ref(hidden)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        y = fake_quantize(hidden, SCALE, ZERO_POINT, 0, 255)
    del hidden
    assert alive() is None
    assert sum(kept) == math.ceil(size / 8)
    y.sum().backward()
    assert torch.equal(leaf.grad, (leaf.detach() < 99).float())


def test_case_39_channels_last_and_a_checkpoint():
    torch.manual_seed(0)
    x = (torch.randn(2, 6, 5, 7) * 12).contiguous(memory_format=torch.channels_last).requires_grad_()

    def forward(x):
        return fake_quantize(x * 1.5, SCALE, ZERO_POINT, 0, 255)

    plain, again = forward(x), checkpoint(forward, x, use_reentrant=False)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, again)
    one, other = (torch.autograd.grad(y.square().sum(), x)[0] for y in (plain, again))
    assert torch.equal(one, other)
    assert 0 < int((one == 0).sum()) < one.numel()


@pytest.mark.parametrize("axis", [None, 0])
def test_case_28_more_elements_than_an_int32_counts(axis):
    """Without data: shapes and lengths of 2^31 + 8 elements, forward and backward."""
    shape = (2**31 + 8,) if axis is None else (2, 2**30 + 4)
    x = torch.empty(shape, device="meta", dtype=torch.bfloat16).requires_grad_()
    count = () if axis is None else (2,)
    scale = torch.ones(count, device="meta")
    zero_point = torch.zeros(count, dtype=torch.int32, device="meta")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        y = fake_quantize(x, scale, zero_point, -128, 127, axis=axis)
    assert (y.shape, y.dtype, y.device.type) == (x.shape, x.dtype, "meta")
    assert sum(kept) == 2**28 + 1
    y.backward(torch.empty_like(y))
    assert x.grad.shape == x.shape
