import math

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qtool.errors import DtypeError, RangeError
from qtool.numerics.qparams import affine_qparams
from qtool.numerics.quantize import dequantize, quantize
from tests.numerics.strategies import FLOAT_DTYPES, SIZES, affine_cases, channel_cases, finite, observed_ranges

reference = torch.ops.quantized_decomposed


def dtype_of(qmin, qmax):
    return torch.uint8 if qmin >= 0 else torch.int8


def numpy_codes(x, scale, zero_point, qmin, qmax):
    """The definition, in numpy's float32."""
    inverse = np.float32(1.0) / scale
    return np.clip(np.rint(x * inverse) + np.float32(zero_point), qmin, qmax)


@given(affine_cases())
def test_codes_equal_the_reference_op_and_numpy(case):
    x, scale, zero_point, qmin, qmax = case
    dtype = dtype_of(qmin, qmax)
    codes = quantize(x, scale, zero_point, qmin, qmax, dtype=dtype)
    expected = reference.quantize_per_tensor(x, scale.item(), zero_point.item(), qmin, qmax, dtype)
    assert torch.equal(codes, expected)
    assert np.array_equal(codes.numpy(), numpy_codes(x.numpy(), scale.numpy(), zero_point.numpy(), qmin, qmax))
    back = dequantize(codes, scale, zero_point)
    assert torch.equal(back, reference.dequantize_per_tensor(codes, scale.item(), zero_point.item(), qmin, qmax, dtype))


@given(hnp.arrays(np.float32, 50, elements=finite), observed_ranges())
def test_codes_equal_the_reference_op_on_any_finite_float32(x, case):
    _, _, qmin, qmax, (scale, zero_point) = case
    x, dtype = torch.from_numpy(x), dtype_of(qmin, qmax)
    expected = reference.quantize_per_tensor(x, scale.item(), zero_point.item(), qmin, qmax, dtype)
    assert torch.equal(quantize(x, scale, zero_point, qmin, qmax, dtype=dtype), expected)


def test_codes_equal_the_reference_op_on_every_half_step():
    scale, zero_point = torch.tensor(0.0173), torch.tensor(31, dtype=torch.int32)
    ties = ((torch.arange(-100, 300).double() + 0.5) * scale.double()).float()
    expected = reference.quantize_per_tensor(ties, scale.item(), 31, 0, 127, torch.uint8)
    assert torch.equal(quantize(ties, scale, zero_point, 0, 127, dtype=torch.uint8), expected)


@given(channel_cases())
def test_channel_codes_equal_the_reference_op_and_each_slice(case):
    x, scale, zero_point, qmin, qmax, axis = case
    dtype = dtype_of(qmin, qmax)
    codes = quantize(x, scale, zero_point, qmin, qmax, axis=axis, dtype=dtype)
    positive = axis % x.dim()
    assert torch.equal(codes, reference.quantize_per_channel(x, scale, zero_point, positive, qmin, qmax, dtype))
    back = dequantize(codes, scale, zero_point, axis=axis)
    assert torch.equal(back, reference.dequantize_per_channel(codes, scale, zero_point, positive, qmin, qmax, dtype))
    for channel in range(scale.numel()):
        alone = quantize(x.select(axis, channel), scale[channel], zero_point[channel], qmin, qmax, dtype=dtype)
        assert torch.equal(codes.select(axis, channel), alone)


@given(observed_ranges(), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_error_is_at_most_half_a_step_inside_the_range(case, positions):
    lo, hi, qmin, qmax, (scale, zero_point) = case
    x = torch.tensor([min(max(lo + p * (hi - lo), lo), hi) for p in positions])
    back = dequantize(quantize(x, scale, zero_point, qmin, qmax, dtype=torch.int32), scale, zero_point)
    # x * inv_scale has a relative error of 2^-23, at most 255 steps from zero
    assert ((back.double() - x.double()).abs() <= scale.double() * (0.5 + 255 * 2.0**-22)).all()


@given(affine_cases())
def test_codes_are_within_one_of_exact_division(case):
    x, scale, zero_point, qmin, qmax = case
    codes = quantize(x, scale, zero_point, qmin, qmax, dtype=torch.int32)
    exact = (x.double() / scale.double()).round().add(zero_point).clamp(qmin, qmax)
    assert ((codes - exact).abs() <= 1).all()


@given(affine_cases())
def test_codes_stay_in_range_and_keep_the_order(case):
    x, scale, zero_point, qmin, qmax = case
    codes = quantize(x.sort().values, scale, zero_point, qmin, qmax, dtype=torch.int32)
    assert ((codes >= qmin) & (codes <= qmax)).all()
    assert (codes.diff() >= 0).all()


@given(affine_cases())
def test_codes_survive_the_round_trip(case):
    x, scale, zero_point, qmin, qmax = case
    codes = quantize(x, scale, zero_point, qmin, qmax, dtype=torch.int32)
    again = quantize(dequantize(codes, scale, zero_point), scale, zero_point, qmin, qmax, dtype=torch.int32)
    assert torch.equal(codes, again)


def test_multiplying_and_dividing_differ_at_ties():
    # Pixels on the grid of a scale of 1/255: the reason for docs/decisions/001-reciprocal-rounding.md.
    scale = torch.tensor(2.0 / 255.0)
    ties = ((torch.arange(0, 127).double() + 0.5) * 2.0 / 255.0).float()
    multiplied = quantize(ties, scale, torch.tensor(0, dtype=torch.int32), 0, 127, dtype=torch.uint8)
    divided = (ties / scale).round().to(torch.uint8)
    assert (multiplied != divided).any()
    assert torch.equal(multiplied, reference.quantize_per_tensor(ties, scale.item(), 0, 0, 127, torch.uint8))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_case_20_nan_gets_the_zero_point_and_infinities_the_ends(dtype):
    qmin, qmax = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    zero_point = torch.tensor(qmin + 40, dtype=torch.int32)
    x = torch.tensor([math.nan, math.inf, -math.inf] * 20)  # long enough for the vectorised loops
    codes = quantize(x, torch.tensor(0.1), zero_point, qmin, qmax, dtype=dtype)
    assert codes.tolist() == [qmin + 40, qmax, qmin] * 20


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_any_dtype_and_size(dtype, size):
    x = torch.linspace(-1.0, 1.0, size).to(dtype)
    qparams = affine_qparams(-1.0, 1.0, 0, 255)
    codes = quantize(x, *qparams, 0, 255, dtype=torch.uint8)
    assert codes.shape == x.shape
    assert torch.equal(codes, quantize(x.float(), *qparams, 0, 255, dtype=torch.uint8))
    assert dequantize(codes, *qparams).dtype == torch.float32


def test_memory_format_is_kept():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    qparams = affine_qparams(torch.full((3,), -1.0), torch.full((3,), 2.0), 0, 255)
    codes = quantize(x, *qparams, 0, 255, axis=1, dtype=torch.uint8)
    assert codes.stride() == x.stride()
    assert dequantize(codes, *qparams, axis=1).stride() == x.stride()


def test_input_is_not_changed():
    x, qparams = torch.tensor([0.3, 9.0]), affine_qparams(0.0, 1.0, 0, 255)
    codes = quantize(x, *qparams, 0, 255, dtype=torch.uint8)
    dequantize(codes, *qparams)
    assert torch.equal(x, torch.tensor([0.3, 9.0]))
    assert codes.tolist() == [76, 255]


def test_dequantize_copies_float_codes():
    codes = torch.tensor([1.0, 2.0])
    dequantize(codes, torch.tensor(2.0), torch.tensor(0, dtype=torch.int32))
    assert codes.tolist() == [1.0, 2.0]


def test_what_cannot_be_quantized_is_refused():
    scale, zero_point = affine_qparams(torch.zeros(3), torch.ones(3), 0, 255)
    with pytest.raises(DtypeError, match="int64"):
        quantize(torch.arange(3), scale[0], zero_point[0], 0, 255, dtype=torch.uint8)
    with pytest.raises(RangeError, match="3 scales for 4 channels"):
        quantize(torch.zeros(2, 4), scale, zero_point, 0, 255, axis=-1, dtype=torch.uint8)
    with pytest.raises(RangeError, match="axis 2"):
        quantize(torch.zeros(2, 3), scale, zero_point, 0, 255, axis=2, dtype=torch.uint8)
    with pytest.raises(RangeError, match=r"0\.\.255 do not fit torch\.int8"):
        quantize(torch.zeros(3), scale[0], zero_point[0], 0, 255, dtype=torch.int8)


def test_float64_is_rounded_by_all_its_bits():
    x = torch.tensor([0.25 - 1e-10, 0.25 + 1e-10], dtype=torch.float64)
    qparams = torch.tensor(0.125), torch.tensor(0, dtype=torch.int32)
    assert quantize(x * 0.25, *qparams, 0, 255, dtype=torch.uint8).tolist() == [0, 1]  # just beside half a step
    assert quantize((x * 0.25).float(), *qparams, 0, 255, dtype=torch.uint8).tolist() == [0, 0]
