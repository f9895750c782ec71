import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from qtool.errors import RangeError
from qtool.numerics.qparams import (
    BIAS_LIMIT,
    SCALE_CEILING,
    SCALE_FLOOR,
    affine_qparams,
    bias_scale_floor,
    qparams_for,
    symmetric_qparams,
)
from qtool.numerics.quantize import dequantize, quantize
from qtool.types import Dtype, FixedParameters, Spec
from tests.numerics.strategies import RANGES, code_ranges, finite, observed_ranges

FLOAT32_MAX = float(np.finfo(np.float32).max)


@given(finite, finite, code_ranges)
def test_scale_is_always_normal_and_zero_point_in_range(a, b, code_range):
    scale, zero_point = affine_qparams(min(a, b), max(a, b), *code_range)
    assert scale.dtype == torch.float32
    assert zero_point.dtype == torch.int32
    assert SCALE_FLOOR <= scale.item() <= SCALE_CEILING
    assert math.isfinite(scale.reciprocal().item())
    assert code_range[0] <= zero_point.item() <= code_range[1]


@given(observed_ranges())
def test_zero_maps_exactly_to_the_zero_point(case):
    _, _, qmin, qmax, (scale, zero_point) = case
    code = quantize(torch.zeros(1), scale, zero_point, qmin, qmax, dtype=torch.int32)
    assert code.item() == zero_point.item()
    assert dequantize(code, scale, zero_point).item() == 0.0


@given(observed_ranges())
def test_both_ends_are_reached_within_half_a_step(case):
    lo, hi, qmin, qmax, (scale, zero_point) = case
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    assume(scale.item() > SCALE_FLOOR)  # a floored scale reaches further than it has to
    reached = dequantize(torch.tensor([qmin, qmax]), scale, zero_point).double()
    assert abs(reached[0].item() - lo) <= scale.item() * 0.5001
    assert abs(reached[1].item() - hi) <= scale.item() * 0.5001


@given(finite, finite, code_ranges)
def test_scale_is_the_float64_quotient_rounded_once(a, b, code_range):
    lo, hi = min(a, b, 0.0), max(a, b, 0.0)
    expected = np.float32(np.clip((hi - lo) / (code_range[1] - code_range[0]), SCALE_FLOOR, SCALE_CEILING))
    assert affine_qparams(lo, hi, *code_range).scale.item() == expected


@given(st.floats(0, FLOAT32_MAX, width=32), code_ranges)
def test_symmetric_covers_both_ends_without_clamping(amax, code_range):
    scale, zero_point = symmetric_qparams(amax, *code_range)
    codes = quantize(torch.tensor([-amax, amax, 0.0]), scale, zero_point, -1000, 1000, dtype=torch.int32)
    assert codes[2].item() == zero_point.item()
    assert code_range[0] <= codes[0].item() <= zero_point.item() <= codes[1].item() <= code_range[1]


@pytest.mark.parametrize(
    ("qmin", "qmax", "zero_point", "steps"), [(-127, 127, 0, 127), (-128, 127, 0, 127), (0, 255, 128, 127)]
)
def test_symmetric_zero_point_and_steps(qmin, qmax, zero_point, steps):
    qparams = symmetric_qparams(1.0, qmin, qmax)
    assert qparams.zero_point.item() == zero_point
    assert qparams.scale.item() == np.float32(1.0 / steps)


def test_case_14_one_formula_for_symmetric_ranges():
    scale = symmetric_qparams(2.533506, -128, 127).scale.item()
    assert scale == np.float32(2.533506 / 127)
    spec = Spec(dtype=Dtype.INT8, qmin=-128, qmax=127, symmetric=True)
    assert qparams_for(-1.149422, 2.533506, spec).scale.item() == scale


def test_case_20_the_widest_range_has_a_finite_scale():
    for qmin, qmax in RANGES:
        scale = affine_qparams(-3e38, 3e38, qmin, qmax).scale
        assert scale.item() == np.float32(6e38 / (qmax - qmin))
        assert math.isfinite(scale.reciprocal().item())
    assert affine_qparams(-3e38, 3e38, 0, 1).scale.item() == SCALE_CEILING


def test_case_21_all_zero_range_has_the_floor_as_scale():
    for scale, zero_point in (affine_qparams(0.0, 0.0, 0, 255), symmetric_qparams(0.0, -127, 127)):
        assert scale.item() == SCALE_FLOOR
        assert zero_point.item() == 0


@pytest.mark.parametrize(
    ("lo", "hi", "scale", "zero_point"),
    [(5.0, 5.0, 5 / 255, 0), (1000.0, 1001.0, 1001 / 255, 0), (-3.0, -3.0, 3 / 255, 255)],
)
def test_case_22_constant_or_one_sided_range_holds_zero(lo, hi, scale, zero_point):
    qparams = affine_qparams(lo, hi, 0, 255)
    assert qparams.scale.item() == np.float32(scale)
    assert qparams.zero_point.item() == zero_point
    back = dequantize(quantize(torch.tensor([lo, hi]), *qparams, 0, 255, dtype=torch.uint8), *qparams)
    assert (back - torch.tensor([lo, hi])).abs().max() <= qparams.scale


def test_case_24_no_scale_below_the_floor():
    scale = affine_qparams(0.0, 1e-40, 0, 255).scale
    assert scale.item() == SCALE_FLOOR
    product = scale * scale
    assert product.item() == np.finfo(np.float32).smallest_normal
    assert math.isfinite(product.reciprocal().item())


def test_case_26_zero_point_is_rounded_half_to_even():
    # -lo / scale is 0.5 and 1.5 exactly
    assert affine_qparams(-0.5, 254.5, 0, 255).zero_point.item() == 0
    assert affine_qparams(-1.5, 253.5, 0, 255).zero_point.item() == 2


def test_per_channel_equals_each_channel():
    lo, hi = torch.tensor([-1.0, 0.0, -3e38, 5.0]), torch.tensor([2.0, 0.0, 3e38, 6.0])
    scale, zero_point = affine_qparams(lo, hi, 0, 127)
    for channel in range(4):
        alone = affine_qparams(lo[channel], hi[channel], 0, 127)
        assert (scale[channel], zero_point[channel]) == alone


@pytest.mark.parametrize(("lo", "hi"), [(math.nan, 1.0), (0.0, math.inf), (-math.inf, 0.0), (2.0, 1.0)])
def test_a_range_that_is_none_is_refused_with_its_channel(lo, hi):
    with pytest.raises(RangeError, match="at channel 1"):
        affine_qparams(torch.tensor([0.0, lo]), torch.tensor([1.0, hi]), 0, 255)


def test_bad_amax_and_empty_code_range_are_refused():
    with pytest.raises(RangeError, match=r"-1\.0"):
        symmetric_qparams(-1.0, -127, 127)
    with pytest.raises(RangeError, match=r"127\.\.0"):
        affine_qparams(0.0, 1.0, 127, 0)
    with pytest.raises(RangeError, match="nan"):
        qparams_for(math.nan, 1.0, Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, symmetric=True))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), st.floats(2.0**-60, 1e4, width=32))
def test_case_15_bias_fits_an_int32_at_the_floor(bias, input_scale):
    bias = torch.tensor(bias)
    floor = bias_scale_floor(bias, input_scale)
    assert floor.dtype == torch.float32
    assert (floor >= SCALE_FLOOR).all()
    exact = bias.double().abs() / (input_scale * floor.double())
    assert (exact < BIAS_LIMIT).all()
    # and as an engine computes it, with the product in float32
    assert (bias.abs() / (torch.tensor(input_scale) * floor) <= 2.0**31).all()


def test_case_15_the_floor_is_not_higher_than_needed():
    # x scale 0.5, bias 5: 5 / (0.5 * (2^31 - 1))
    floor = bias_scale_floor(torch.tensor([5.0, -4.5, 0.0]), 0.5).tolist()
    assert floor == pytest.approx([10 / BIAS_LIMIT, 9 / BIAS_LIMIT, SCALE_FLOOR], rel=3e-7)
    assert floor[0] > 7.843e-10


def test_case_31_fixed_parameters_are_the_result_whatever_was_seen():
    spec = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, fixed=FixedParameters(scale=1 / 256, zero_point=0))
    found = qparams_for(0.2, 0.3, spec)
    assert (float(found.scale), int(found.zero_point), found.zero_point.dtype) == (1 / 256, 0, torch.int32)
