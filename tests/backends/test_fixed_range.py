import pytest

from qtool.backends.fixed_range import FIXED_RANGES, fixed_parameters
from qtool.types import FixedParameters, Op


@pytest.mark.parametrize(
    ("op", "qmin", "qmax", "scale", "zero_point"),
    [
        (Op.SIGMOID, 0, 255, 1 / 256, 0),
        (Op.SIGMOID, 0, 127, 1 / 128, 0),
        (Op.SIGMOID, -128, 127, 1 / 256, -128),
        (Op.TANH, 0, 255, 1 / 128, 128),
        (Op.TANH, 0, 127, 1 / 64, 64),
        (Op.TANH, -128, 127, 1 / 128, 0),
        (Op.TANH, -64, 63, 1 / 64, 0),
    ],
)
def test_case_31_parameters_of_a_known_range(op, qmin, qmax, scale, zero_point):
    assert fixed_parameters(op, qmin, qmax) == FixedParameters(scale=scale, zero_point=zero_point)


@pytest.mark.parametrize("op", FIXED_RANGES)
@pytest.mark.parametrize(("qmin", "qmax"), [(0, 255), (0, 127), (-128, 127), (-64, 63)])
def test_codes_go_from_the_lower_bound_to_a_step_below_the_upper(op, qmin, qmax):
    low, high = FIXED_RANGES[op]
    fixed = fixed_parameters(op, qmin, qmax)
    assert (qmin - fixed.zero_point) * fixed.scale == low
    assert (qmax - fixed.zero_point) * fixed.scale == high - fixed.scale


def test_all_other_ops_are_observed():
    assert {op for op in Op if fixed_parameters(op, 0, 255) is not None} == FIXED_RANGES.keys()
