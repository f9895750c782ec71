"""The C code computes the ATen definitions bit for bit."""

import math
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels import native
from qtool.numerics.kernels.bits import blocked_indices, pack_bits, select
from qtool.numerics.kernels.fake_quantize import decode, quantize_values
from qtool.numerics.kernels.normalize import normalize_grad, normalize_quantize, normalize_sums
from qtool.numerics.kernels.statistics import channel_statistics

RANGES = [(0, 255), (0, 127), (-128, 127), (-127, 127), (-64, 63), *((0, 2**bits - 1) for bits in range(2, 8))]
BOUNDS = [NO_BOUNDS, Bounds(0.0), Bounds(0.0, 6.0), Bounds(-1.0, 1.0), Bounds(high=2.0)]
LAYOUTS = {
    "planes": lambda x: x,
    "rows": lambda x: x.to(memory_format=torch.channels_last),
    "turned": lambda x: x.permute(3, 2, 1, 0).clone(memory_format=torch.contiguous_format).permute(3, 2, 1, 0),
    "strided": lambda x: x[..., ::2],
}
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, 3e38]


@contextmanager
def aten():
    """Have everything computed by the definitions."""
    usual = native.takes
    native.takes = lambda *_: False
    try:
        yield
    finally:
        native.takes = usual


@contextmanager
def threads(count):
    """Have `count` threads, each of which is worth starting."""
    usual, native.WORTH_A_THREAD = (torch.get_num_threads(), native.WORTH_A_THREAD), 1
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual[0])
        native.WORTH_A_THREAD = usual[1]


def strides(x):
    """Return the strides that say where an element lies."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def same_bits(ours, theirs):
    """Assert that two results, nested as they come, are equal in every bit, dtype and stride; NaN equals NaN."""
    if ours is None or theirs is None:
        assert ours is theirs
        return
    if not isinstance(ours, torch.Tensor):
        for one, other in zip(ours, theirs, strict=True):
            same_bits(one, other)
        return
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.numel():
        assert strides(ours) == strides(theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def both(run, count):
    """Return what C code and ATen give."""
    assert native.takes(torch.zeros(1))
    with threads(count):
        ours = run()
    with aten():
        return ours, run()


@st.composite
def tensors(draw, dtypes=(torch.float32,)):
    """Draw (N, C, H, W) of an odd or even size, a layout, and perhaps NaN, infinities and denormals."""
    shape = draw(
        st.sampled_from(
            [
                *((2, 3, 5, 7), (1, 1, 1, 1), (3, 8, 1, 1), (2, 16, 16, 16), (2, 5, 33, 31), (19, 40, 3, 3)),
                *((0, 3, 4, 4), (2, 3, 0, 4), (33, 1, 2, 2), (5, 1025, 2, 1), (300, 4, 1, 2), (1, 2, 70, 70)),
            ]
        )
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(shape, generator=generator) * draw(st.sampled_from([0.1, 3.0, 100.0]))
    if draw(st.booleans()) and x.numel():
        flat = x.view(-1)
        for value in draw(st.lists(st.sampled_from(SPECIAL), max_size=4)):
            flat[draw(st.integers(0, x.numel() - 1))] = value
    x = x.to(draw(st.sampled_from(dtypes)))
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](x)


@st.composite
def grids(draw, x, axes=(None,)):
    """Draw a grid for `x`, or None."""
    if draw(st.integers(0, 4)) == 0:
        return None
    qmin, qmax = draw(st.sampled_from(RANGES))
    axis = draw(st.sampled_from(axes))
    size = () if axis is None else (x.shape[axis],)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    scale = torch.rand(size, generator=generator) * draw(st.sampled_from([0.01, 0.1, 1.0])) + 1e-3
    zero_point = torch.randint(qmin, qmax + 1, size, generator=generator, dtype=torch.int32)
    return Grid(scale, zero_point, qmin, qmax, axis)


def flattened(result):
    values, codes, mask, low, high = result
    return values, codes, None if mask is None else mask.stored, low, high


@given(st.data(), st.sampled_from(BOUNDS), st.integers(1, 3))
def test_quantize_values(data, bounds, count):
    x = data.draw(tensors((torch.float32, torch.bfloat16)))
    grid = data.draw(grids(x, (None, 0, 1, -1, 2)))
    addend = data.draw(st.sampled_from([None, x.flip(0), x.flip(1).contiguous()]))
    wants = data.draw(st.booleans())

    def run(in_place):
        copy = x.clone()
        result = quantize_values(copy, grid, bounds, addend, wants_codes=wants, in_place=in_place)
        return flattened(result)

    ours, theirs = both(lambda: run(False), count)
    same_bits(ours, theirs)
    same_bits(run(True), theirs)
    if grid is not None and ours[1] is not None:
        same_bits(decode(ours[1], grid, x.dtype), ours[0])


@given(st.data(), st.integers(1, 3))
def test_decode(data, count):
    x = data.draw(tensors())
    grid = data.draw(grids(x, (None, 0, 1, -1)))
    if grid is None:
        return
    codes = torch.randint(grid.qmin, grid.qmax + 1, x.shape, dtype=grid.code_dtype)
    codes = torch.empty_like(x, dtype=grid.code_dtype).copy_(codes)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        same_bits(*both(lambda dtype=dtype: decode(codes, grid, dtype), count))


@given(st.data(), st.integers(1, 3))
def test_statistics(data, count):
    x = data.draw(tensors())
    same_bits(*both(lambda: channel_statistics(x), count))


@given(st.data(), st.sampled_from(BOUNDS), st.integers(1, 3), st.booleans())
def test_normalize(data, bounds, count, is_frozen):
    x = data.draw(tensors())
    grid = data.draw(grids(x))
    grad = data.draw(st.sampled_from([x.flip(0), x.flip(1).contiguous(), x[:, :1].expand(x.shape)]))
    generator = torch.Generator().manual_seed(0)
    factor, shift, a, m, b, k = torch.randn(6, x.shape[1], generator=generator)
    centre = torch.randn(x.shape[1], dtype=torch.float64, generator=generator)
    coefficients = (a, None, None, None) if is_frozen else (a, m, b, k)

    def run(in_place):
        return (
            normalize_sums(x, grad, factor, shift, centre, bounds, grid),
            normalize_quantize(x.clone(), factor, shift, bounds, grid, in_place=in_place),
            normalize_grad(x.clone(), grad, factor, shift, bounds, grid, coefficients, in_place=in_place),
        )

    ours, theirs = both(lambda: run(False), count)
    same_bits(ours, theirs)
    same_bits(run(True), theirs)


def test_normalize_bfloat16():
    x = (torch.randn(2, 3, 5, 7) * 3).bfloat16()
    factor, shift = torch.randn(2, 3)
    grid = Grid(torch.tensor(0.1), torch.tensor(7, dtype=torch.int32), 0, 255)
    same_bits(*both(lambda: normalize_quantize(x, factor, shift, Bounds(0.0), grid), 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4097])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_bits(dtype, size, count):
    passes = torch.rand(size) < 0.7
    bits = pack_bits(passes)
    grad = torch.randn(size).to(dtype)
    grad[~passes] = math.inf
    same_bits(*both(lambda: select(grad, bits), count))
    num_blocked = size - int(passes.sum())
    same_bits(*both(lambda: blocked_indices(bits, size, num_blocked), count))


def test_large_tensors_in_both_formats_on_any_number_of_threads():
    x = torch.randn(9, 24, 61, 67)
    grid = Grid(torch.tensor(0.01), torch.tensor(100, dtype=torch.int32), 0, 255)
    for laid_out in (x, x.to(memory_format=torch.channels_last)):
        with aten():
            expected = (*channel_statistics(laid_out), *flattened(quantize_values(laid_out, grid)))
        for count in (1, 2, 3):
            with threads(count):
                same_bits((*channel_statistics(laid_out), *flattened(quantize_values(laid_out, grid))), expected)


def test_a_change_in_place_is_known_to_autograd():
    leaf = torch.randn(8, requires_grad=True)
    hidden = leaf * 2
    squares = hidden.square()  # keeps hidden
    with torch.no_grad():
        quantize_values(hidden, None, Bounds(0.0), in_place=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()


def test_what_traces_or_differentiates_gets_aten():
    x = torch.randn(4)
    assert native.takes(x, None)
    assert not native.takes(x.requires_grad_())
    assert not native.takes(torch.empty(4, device="meta"))
    with torch.no_grad():
        assert native.takes(x)
    taken = []
    torch.func.vmap(lambda row: taken.append(native.takes(row)) or row)(torch.zeros(2, 2))
    assert taken == [False]
