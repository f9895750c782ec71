import pytest

from qtool.errors import RangeError
from qtool.types import Dtype, FixedParameters, Granularity, Spec


@pytest.mark.parametrize(
    ("dtype", "qmin", "qmax"),
    [(Dtype.UINT8, -1, 127), (Dtype.UINT8, 0, 256), (Dtype.INT8, -129, 127), (Dtype.UINT8, 5, 5), (Dtype.UINT8, 9, 3)],
)
def test_a_range_must_fit_its_dtype(dtype, qmin, qmax):
    with pytest.raises(RangeError, match=rf"range {qmin}\.\.{qmax} does not fit {dtype}"):
        Spec(dtype=dtype, qmin=qmin, qmax=qmax)


def test_case_07_reduce_range_with_the_full_range_names_both():
    with pytest.raises(ValueError, match=r"reduce_range is set, but qmin=0 and qmax=255 are the full range of uint8"):
        Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, reduce_range=True)


@pytest.mark.parametrize(("granularity", "axis"), [(Granularity.TENSOR, 0), (Granularity.CHANNEL, None)])
def test_only_one_scale_per_channel_has_an_axis(granularity, axis):
    with pytest.raises(RangeError, match="only 'channel' has an axis"):
        Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, granularity=granularity, axis=axis)


def test_steps_are_counted_between_the_ends():
    assert Spec(dtype=Dtype.UINT8, qmin=0, qmax=127).num_steps == 127


@pytest.mark.parametrize(
    ("scale", "zero_point", "more"),
    [
        (0.0, 0, {}),
        (-1.0, 0, {}),
        (float("inf"), 0, {}),
        (float("nan"), 0, {}),
        (0.5, 128, {}),
        (0.5, 0, {"symmetric": True}),
        (0.5, 0, {"granularity": Granularity.CHANNEL, "axis": 0}),
    ],
)
def test_case_31_fixed_parameters_must_fit_the_codes(scale, zero_point, more):
    fixed = FixedParameters(scale=scale, zero_point=zero_point)
    with pytest.raises(RangeError, match=f"fixed scale {scale} and zero point {zero_point} do not fit 0..127"):
        Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, fixed=fixed, **more)
