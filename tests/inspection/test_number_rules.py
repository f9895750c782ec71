"""The rules QT401 to QT413: each of a file with the fault, and of one without."""

import numpy as np
import pytest

from qtool.inspection.codes import Severity
from qtool.inspection.findings import Outcome
from qtool.readers.facts import Compute, FileKind, Operand, Role
from qtool.types import Op
from tests.inspection.hand_made import INT32, HandMade, codes_of, inspected, quantization, random_codes

CODES = random_codes((4, 8))


def found(made, monkeypatch, family="QT4", **facts):
    report = inspected(made, monkeypatch, **facts)
    return [(each.code, each.message) for each in report.findings if each.code.startswith(family)]


def of_layer(monkeypatch, codes=CODES, **fields):
    made = HandMade()
    made.layer("fc", codes, **fields)
    return found(made, monkeypatch)


def test_a_sound_layer_has_no_findings(monkeypatch):
    bias = Operand(role=Role.BIAS, name="fc.bias", quantization=quantization(INT32, 0.0002))
    assert of_layer(monkeypatch, bias=bias, axis=0, scale=(0.01, 0.02, 0.03, 0.04)) == []


@pytest.mark.parametrize(
    ("scale", "code"),
    [
        (0.0, "QT401"),
        (-0.5, "QT401"),
        (float("nan"), "QT401"),
        (float("inf"), "QT401"),
        (1e-40, "QT402"),
        (1.1e-38, "QT402"),
        (1.2e-38, None),
        (2.0, None),
    ],
)
def test_case_24_scales(scale, code, monkeypatch):
    wanted = [] if code is None else [code]
    assert [each for each, _ in of_layer(monkeypatch, input_scale=scale)] == wanted
    assert [each for each, _ in of_layer(monkeypatch, scale=(0.1, scale, 0.1, 0.1), axis=0)] == wanted


def test_case_24_the_finding_says_how_many_and_of_which_tensor(monkeypatch):
    findings = of_layer(monkeypatch, scale=(0.1, 0.0, float("nan"), 0.1), axis=0)
    assert findings == [("QT401", "weight fc.weight: 2 scales are 0, negative, infinite or NaN")]


@pytest.mark.parametrize("scale", ["float16", "float32", "float64"])
@pytest.mark.parametrize("zero_point", ["int8", "int32", "int64", "float32"])
def test_case_25_scales_and_zero_points_of_any_dtype_are_numbers(scale, zero_point, monkeypatch):
    made = HandMade()
    scales = made.store("s", np.array([0.5, 0.25, 0.5, 1], scale))
    zero_points = made.store("z", np.array([0, 3, -3, 0], zero_point))
    made.layer("fc", CODES, scale=scales, zero_point=zero_points, axis=0)
    report = inspected(made, monkeypatch)
    weight = report.nodes[0].tensor(Role.WEIGHT)
    assert (weight.scale_min, weight.scale_max, weight.zero_point_min, weight.zero_point_max) == (0.25, 1, -3, 3)
    assert [code for code in codes_of(report) if code.startswith("QT4")] == []


def test_case_26_fractional_zero_points(monkeypatch):
    (finding,) = of_layer(monkeypatch, scale=(0.1, 0.1), codes=CODES[:2], zero_point=(0.4, 1.6), axis=0)
    message = "weight fc.weight: 2 zero points are not integral: 0.4..1.6, and its codes are -128..127"
    assert finding == ("QT403", message)
    assert of_layer(monkeypatch, scale=(0.1, 0.1), codes=CODES[:2], zero_point=(0.0, 2.0), axis=0) == []


def test_case_27_zero_points_outside_their_codes(monkeypatch):
    (finding,) = of_layer(monkeypatch, zero_point=(200.0,))
    assert finding == (
        "QT403",
        "weight fc.weight: 1 zero point lies outside its codes: 200, and its codes are -128..127",
    )
    assert of_layer(monkeypatch, zero_point=(float("nan"),))[0][0] == "QT403"
    assert of_layer(monkeypatch, zero_point=(-128.0,)) == []


def biased(made, values, **fields):
    stored = made.store("fc.bias", values)
    return Operand(role=Role.BIAS, name="fc.bias", tensor=stored, **fields)


@pytest.mark.parametrize(("scale", "codes"), [(0.0002, []), (0.000201, ["QT404"]), (0.0002 * (1 + 1e-6), [])])
def test_the_scale_of_a_bias_is_that_of_its_sums(scale, codes, monkeypatch):
    made = HandMade()
    bias = biased(made, np.int32([1, 2, 3, 4]), quantization=quantization(INT32, scale))
    made.layer("fc", CODES, bias=bias)
    assert [code for code, _ in found(made, monkeypatch)] == codes


def test_scales_of_a_bias_are_compared_channel_by_channel(monkeypatch):
    made, weight = HandMade(), (0.01, 0.02, 0.03, 0.04)
    own = (0.0002, 0.0004, 0.0006, 0.0009)
    bias = biased(made, np.int32([1, 2, 3, 4]), quantization=quantization(INT32, own, axis=0))
    made.layer("fc", CODES, scale=weight, axis=0, bias=bias)
    (finding,) = found(made, monkeypatch)
    assert finding == ("QT404", "bias fc.bias: 1 scale is not the input's scale times the weight's")


@pytest.mark.parametrize(
    ("values", "weight_scale", "wanted"),
    [
        (np.float32([5.0, -4.5]), 7.843e-10, 2),
        (np.float32([5.0, 0.0]), 7.843e-10, 1),
        (np.float32([5.0, -4.5]), 7.843e-9, 0),
        (np.int32([2**31 - 1, -(2**31)]), 0.01, 2),
        (np.int32([2**31 - 2, 5]), 0.01, 0),
    ],
)
def test_case_15_a_bias_that_does_not_fit_int32(values, weight_scale, wanted, monkeypatch):
    made = HandMade()
    codes = quantization(INT32, 0.5 * weight_scale) if values.dtype == np.int32 else None
    made.layer("fc", CODES[:2, :4], scale=weight_scale, input_scale=0.5, bias=biased(made, values, quantization=codes))
    verb = "value does" if wanted == 1 else "values do"
    message = f"bias fc.bias: {wanted} {verb} not fit int32 in units of input scale times weight scale"
    assert found(made, monkeypatch) == ([("QT405", message)] if wanted else [])


def test_dead_channels_are_told_and_are_no_fault(monkeypatch):
    codes = CODES.copy()
    codes[1] = codes[3] = 0
    made = HandMade()
    made.layer("fc", codes)
    report = inspected(made, monkeypatch)
    (finding,) = [each for each in report.findings if each.code == "QT406"]
    assert finding.message == "weight fc.weight: 2 output channels have no code but that of 0.0"
    assert finding.severity is Severity.INFO
    assert finding.node == "fc"


def test_a_weight_of_one_code(monkeypatch):
    assert ("QT407", "weight fc.weight: all its codes are 3") in of_layer(
        monkeypatch, codes=np.full((2, 2), 3, np.int8)
    )
    assert of_layer(monkeypatch, codes=np.int8([[3]])) == []


@pytest.mark.parametrize(
    ("shape", "op", "axis", "num_scales", "fields", "is_wrong"),
    [
        ((4, 8), Op.LINEAR, 0, 4, {}, False),
        ((4, 8), Op.LINEAR, 1, 8, {}, True),
        ((4, 8), Op.LINEAR, -2, 4, {}, False),
        ((4, 8), Op.LINEAR, 2, 4, {}, True),
        ((4, 8), Op.LINEAR, 0, 8, {}, True),
        ((8, 4), Op.LINEAR, 1, 4, {"is_weight_in_out": True}, False),
        ((8, 4), Op.LINEAR, 0, 8, {"is_weight_in_out": True}, True),
        ((4, 8, 3, 3), Op.CONV2D, 0, 4, {}, False),
        ((4, 8, 3, 3), Op.CONV2D, 1, 8, {}, True),
        ((4, 8, 3, 3), Op.CONV_TRANSPOSE2D, 1, 8, {}, False),
        ((4, 8, 3, 3), Op.CONV_TRANSPOSE2D, 0, 4, {}, True),
        ((4, 8, 3, 3), Op.CONV_TRANSPOSE2D, 0, 4, {"groups": 2}, False),  # its channels lie on no single axis
        ((4, 8), None, 1, 8, {}, False),
    ],
)
def test_scales_lie_on_the_axis_of_the_output_channels(shape, op, axis, num_scales, fields, is_wrong, monkeypatch):
    findings = of_layer(monkeypatch, codes=random_codes(shape), op=op, axis=axis, scale=(0.1,) * num_scales, **fields)
    assert [code for code, _ in findings] == (["QT408"] if is_wrong else [])


def test_case_60_a_checkpoint_of_training_is_not_quantized(monkeypatch):
    made = HandMade()
    weight = Operand(role=Role.WEIGHT, name="w", tensor=made.store("w", np.ones((4, 4), np.float32)))
    made.node("fc", Op.LINEAR, weight, compute=Compute.FAKE_QUANTIZED)
    report = inspected(made, monkeypatch, kind=FileKind.CHECKPOINT, form="training checkpoint (fake-quantized)")
    assert report.outcome is Outcome.NOT_QUANTIZED
    assert codes_of(report) == ["QT210", "QT409"]
    assert report.findings[0].message == (
        "it is a checkpoint of torch.save: 1 node rounds its values as in training, and computes in float"
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_case_60_a_float_copy_beside_the_int8_weight(dtype, axis, monkeypatch):
    """The float weight that the codes were made of: no value is further from its code than half a step."""
    values = np.random.default_rng(3).normal(size=(64, 128)).astype(np.float32)
    largest = np.abs(values).max(axis=None if axis is None else 1 - axis, keepdims=True)
    scale = (largest / 100).astype(np.float64)  # some values lie beyond the last code
    codes = np.rint(values / scale).clip(-90, 90).astype(np.int8)
    ends = ("int8", -90, 90)
    made = HandMade()
    made.store("old", values.astype(dtype))
    made.store("other", np.zeros((64, 128), np.float32))
    tensor = made.store("fc.weight", codes)
    told = quantization(ends, tuple(scale.reshape(-1).tolist()), axis=axis)
    weight = Operand(role=Role.WEIGHT, name="fc.weight", tensor=tensor, quantization=told)
    made.node("fc", None, weight)
    size = values.astype(dtype).nbytes
    assert found(made, monkeypatch) == [("QT410", f"old holds the same weight, {size} bytes")]


def test_case_60_other_float_tensors_are_no_copies(monkeypatch):
    made = HandMade()
    made.store("of another shape", np.zeros((8, 4), np.float32))
    made.store("of other values", CODES.astype(np.float32))
    made.layer("fc", CODES)
    assert found(made, monkeypatch) == []


def test_a_batch_norm_behind_a_quantized_layer(monkeypatch):
    made = HandMade()
    made.layer("conv", random_codes((4, 4, 3, 3)), op=Op.CONV2D)
    made.node("bn", None, target="quantized::batch_norm2d", compute=Compute.STATIC, reads=("conv",))
    made.node("free", None, target="BatchNormalization", compute=Compute.FLOAT, reads=("bn",))
    made.node("relu", None, target="relu", compute=Compute.FLOAT, reads=("conv",))
    assert found(made, monkeypatch) == [("QT411", "batch norm bn reads it")]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_weights_that_are_not_finite(dtype, monkeypatch):
    made = HandMade()
    values = np.ones((64, 64), dtype)
    weight = Operand(role=Role.WEIGHT, name="w", tensor=made.store("w", values))
    made.node("fine", Op.LINEAR, weight, compute=Compute.FLOAT)
    values[3, 3], values[4, 4], values[63, 63] = np.inf, -np.inf, np.nan
    weight = Operand(role=Role.WEIGHT, name="v", tensor=made.store("v", values))
    made.node("broken", Op.LINEAR, weight, compute=Compute.FLOAT)
    assert found(made, monkeypatch) == [("QT413", "weight v: 3 values are infinite or NaN")]
