"""Layers of small graphs: how they compute, how each tensor is quantized, and what belongs to them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from qtool.readers.facts import Compute, Role
from qtool.types import Op
from tests.readers.onnx_models import model_facts, model_of, nodes_of, quantization

node = helper.make_node
SCALE, ZERO = np.float32(0.5), np.uint8(10)
WEIGHTS = {
    "s": SCALE,
    "z": ZERO,
    "w": np.arange(-8, 8, dtype=np.int8).reshape(4, 4),
    "ws": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
    "wz": np.zeros(4, np.int8),
    "lo": np.uint8(3),
    "hi": np.uint8(120),
    "f0": np.float32(0),
    "f6": np.float32(6),
    "row": np.ones(4, np.float32),
    "bias": np.arange(4, dtype=np.int32),
    "bs": np.array([0.05, 0.1, 0.15, 0.2], np.float32),
}


def before(value="x"):
    """A value as codes and back: `xf`."""
    return [
        node("QuantizeLinear", [value, "s", "z"], [f"{value}q"]),
        node("DequantizeLinear", [f"{value}q", "s", "z"], [f"{value}f"]),
    ]


def behind(value, output="y"):
    return [
        node("QuantizeLinear", [value, "s", "z"], [f"{output}q"]),
        node("DequantizeLinear", [f"{output}q", "s", "z"], [output]),
    ]


def weight(axis=1):
    return node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis)


def only(nodes, **more):
    (found,) = nodes_of(model_of(nodes, {**WEIGHTS, **more})).values()
    return found


def test_a_layer_between_codes():
    found = only([*before(), weight(), node("MatMul", ["xf", "wf"], ["m"], name="m"), *behind("m")])
    assert (found.op, found.target, found.compute) == (Op.LINEAR, "MatMul", Compute.STATIC)
    assert found.is_weight_in_out
    of_input, of_weight = quantization(found, Role.INPUT), quantization(found, Role.WEIGHT)
    assert (of_input.dtype, of_input.qmin, of_input.qmax) == ("uint8", 0, 255)
    assert (of_input.scale, of_input.zero_point, of_input.axis) == ((0.5,), (10,), None)
    assert (of_weight.dtype, of_weight.qmin, of_weight.qmax, of_weight.axis) == ("int8", -128, 127, 1)
    assert of_weight.scale == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert of_weight.zero_point == (0, 0, 0, 0)
    assert found.operand(Role.WEIGHT).tensor.name == "w"
    assert quantization(found, Role.OUTPUT) == of_input


def test_a_clip_on_codes_narrows_their_range():
    """As `qtool export` writes it: QuantizeLinear, then Clip on the codes."""

    def clipped(value, output):
        return [
            node("QuantizeLinear", [value, "s", "z"], [f"{output}w"]),
            node("Clip", [f"{output}w", "lo", "hi"], [f"{output}q"]),
            node("DequantizeLinear", [f"{output}q", "s", "z"], [output]),
        ]

    layer = node("MatMul", ["xf", "wf"], ["m"], name="m")
    found = only([*clipped("x", "xf"), weight(), layer, *clipped("m", "y")])
    for role in (Role.INPUT, Role.OUTPUT):
        assert (quantization(found, role).qmin, quantization(found, role).qmax) == (3, 120)


def test_codes_that_go_on_without_the_clip_have_the_whole_range():
    nodes = [
        *before(),
        weight(),
        node("MatMul", ["xf", "wf"], ["m"], name="m"),
        node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        node("Clip", ["mq", "lo", "hi"], ["narrow"]),
        node("DequantizeLinear", ["mq", "s", "z"], ["y"]),
    ]
    found = quantization(only(nodes), Role.OUTPUT)
    assert (found.qmin, found.qmax) == (0, 255)


@pytest.mark.parametrize(
    ("op", "bounds", "word"),
    [
        ("Relu", [], "relu"),
        ("Clip", ["f0", "f6"], "relu6"),
        ("Clip", ["f0"], "relu"),
        ("Clip", ["", "f6"], "clip(-inf, 6)"),
    ],
)
def test_an_activation_before_the_codes_is_part_of_the_layer(op, bounds, word):
    nodes = [*before(), weight(), node("MatMul", ["xf", "wf"], ["m"], name="m"), node(op, ["m", *bounds], ["a"])]
    assert only([*nodes, *behind("a")]).activation == word
    assert only(nodes).activation is None  # nothing quantizes its result


def test_a_bias_may_be_added_behind_a_product():
    nodes = [*before(), weight(), node("MatMul", ["xf", "wf"], ["m"], name="m"), node("Add", ["row", "m"], ["b"])]
    found = only([*nodes, *behind("b")])
    assert found.operand(Role.BIAS).tensor.name == "row"
    assert quantization(found, Role.OUTPUT).scale == (0.5,)


def test_a_bias_is_quantized_by_what_dequantizes_it():
    nodes = [
        *before(),
        weight(0),
        node("DequantizeLinear", ["bias", "bs"], ["bf"], axis=0),
        node("Gemm", ["xf", "wf", "bf"], ["y"], name="m", transB=1),
    ]
    found = only(nodes)
    assert not found.is_weight_in_out
    of_bias = quantization(found, Role.BIAS)
    assert (of_bias.dtype, of_bias.zero_point, of_bias.axis) == ("int32", (), 0)
    assert of_bias.scale == pytest.approx((0.05, 0.1, 0.15, 0.2))


@pytest.mark.parametrize(
    ("nodes", "is_in_out", "axis"),
    [
        ([weight(), node("MatMul", ["x", "wf"], ["y"])], True, 1),
        ([weight(0), node("Transpose", ["wf"], ["wt"]), node("MatMul", ["x", "wt"], ["y"])], False, 0),
        ([node("Transpose", ["w"], ["wt"], perm=[1, 0]), node("DequantizeLinear", ["wt", "ws", "wz"], ["wf"], axis=1),
          node("MatMul", ["x", "wf"], ["y"])], False, 0),
        ([weight(0), node("MatMul", ["wf", "x"], ["y"])], False, 0),
        ([weight(), node("Gemm", ["x", "wf"], ["y"])], True, 1),
        ([weight(0), node("Gemm", ["x", "wf"], ["y"], transB=1)], False, 0),
        ([weight(0), node("Gemm", ["wf", "x"], ["y"])], False, 0),
        ([weight(), node("Gemm", ["wf", "x"], ["y"], transA=1)], True, 1),
    ],
)  # fmt: skip
def test_which_way_a_weight_is_stored(nodes, is_in_out, axis):
    """The channel axis is that of the stored tensor: the one that is not summed over."""
    found = only(nodes)
    assert (found.is_weight_in_out, quantization(found, Role.WEIGHT).axis) == (is_in_out, axis)
    assert found.compute is Compute.WEIGHT_ONLY


def test_floats_that_are_rounded_in_the_graph_are_fake_quantized():
    nodes = [
        *before(),
        node("QuantizeLinear", ["float", "ws", "wz"], ["wq"], axis=0),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wf"], axis=0),
        node("Gemm", ["xf", "wf"], ["y"], transB=1),
    ]
    facts = model_facts(model_of(nodes, {**WEIGHTS, "float": np.ones((4, 4), np.float32)}))
    assert facts.form == "fake-quantized graph, opset 21"
    assert facts.nodes[0].compute is Compute.FAKE_QUANTIZED
    assert facts.nodes[0].operand(Role.WEIGHT).tensor.dtype == "float32"
    assert quantization(facts.nodes[0], Role.WEIGHT).dtype == "int8"


def test_scales_of_blocks():
    blocks = np.ones((4, 2), np.float32)
    four_bits = helper.make_tensor("w4", TensorProto.INT4, [4, 8], [1, -2] * 16)
    nodes = [
        node("DequantizeLinear", ["w4", "bs2"], ["wf"], axis=1, block_size=4),
        node("Gemm", ["x", "wf"], ["y"], transB=1),
    ]
    (found,) = nodes_of(model_of(nodes, {"bs2": blocks}, tensors=[four_bits])).values()
    of_weight = quantization(found, Role.WEIGHT)
    assert (of_weight.dtype, of_weight.qmin, of_weight.qmax) == ("int4", -8, 7)
    assert (of_weight.axis, of_weight.group_size, len(of_weight.scale)) == (1, 4, 8)


def test_numbers_are_told_as_they_are():
    """NaN, infinite and negative scales, zero points out of range: readers judge nothing."""
    nodes = [node("DequantizeLinear", ["w", "bad", "off"], ["wf"], axis=0), node("Gemm", ["x", "wf"], ["y"], transB=1)]
    bad = np.array([np.nan, np.inf, -1, 1e-45], np.float32)
    of_weight = quantization(only(nodes, bad=bad, off=np.array([300, -5, 0, 0], np.int32)), Role.WEIGHT)
    np.testing.assert_array_equal(np.array(of_weight.scale, np.float32), bad)
    assert of_weight.zero_point == (300, -5, 0, 0)
    fractional = quantization(only(nodes, bad=bad, off=np.array([0.4, 1.6, 0, 0], np.float32)), Role.WEIGHT)
    assert fractional.zero_point == pytest.approx((0.4, 1.6, 0, 0))


def test_a_scale_that_is_worked_out_is_not_known():
    nodes = [
        node("Abs", ["s"], ["a"]),
        node("DequantizeLinear", ["w", "a"], ["wf"]),
        node("MatMul", ["x", "wf"], ["y"]),
    ]
    assert quantization(only(nodes), Role.WEIGHT).scale is None


def test_a_product_of_two_activations_has_no_weight():
    nodes = [*before("x"), *before("v"), node("MatMul", ["xf", "vf"], ["m"], name="m"), *behind("m")]
    (found,) = nodes_of(model_of(nodes, WEIGHTS, inputs=("x", "v"))).values()
    assert (found.op, found.compute) == (None, Compute.STATIC)
    assert [operand.role for operand in found.operands] == [Role.INPUT, Role.INPUT, Role.OUTPUT]


def test_what_is_float_on_one_side_is_no_quantized_layer():
    assert not nodes_of(model_of([*before(), node("Sigmoid", ["xf"], ["y"])], WEIGHTS))
    assert not nodes_of(model_of([node("Sigmoid", ["x"], ["m"]), *behind("m")], WEIGHTS))
    for other in ("v", "row"):  # computed, or stored as floats
        assert not nodes_of(model_of([*before(), node("Add", ["xf", other], ["m"]), *behind("m")], WEIGHTS))


def test_reads_are_the_layers_just_before():
    nodes = [
        *before(),
        weight(0),
        node("Gemm", ["xf", "wf"], ["a"], name="a", transB=1),
        *behind("a", "af"),
        node("Sigmoid", ["af"], ["b"], name="b"),
        *behind("b", "bf"),
        node("Add", ["af", "bf"], ["c"], name="c"),
        *behind("c"),
    ]
    found = nodes_of(model_of(nodes, WEIGHTS))
    assert {name: each.reads for name, each in found.items()} == {"a": (), "b": ("a",), "c": ("a", "b")}


def test_batch_norm_behind_a_convolution_is_seen():
    arrays = {"k": np.ones((4, 3, 1, 1), np.float32), **{name: np.ones(4, np.float32) for name in "gbmv"}}
    nodes = [
        node("Conv", ["x", "k"], ["c"], name="conv"),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], name="bn"),
    ]
    found = nodes_of(model_of(nodes, arrays))
    assert (found["bn"].target, found["bn"].reads, found["bn"].compute) == (
        "BatchNormalization",
        ("conv",),
        Compute.FLOAT,
    )


@pytest.mark.parametrize("on_codes", [True, False])
def test_an_embedding_may_be_dequantized_before_or_behind(on_codes):
    if on_codes:
        nodes = [node("Gather", ["w", "x"], ["r"], name="e"), node("DequantizeLinear", ["r", "s"], ["y"])]
    else:
        nodes = [node("DequantizeLinear", ["w", "s"], ["wf"]), node("Gather", ["wf", "x"], ["y"], name="e")]
    found = only(nodes)
    assert (found.target, found.compute, quantization(found, Role.WEIGHT).scale) == (
        "Gather",
        Compute.WEIGHT_ONLY,
        (0.5,),
    )


def test_operators_of_others_are_not_understood():
    """Not even one that is called as ONNX's own are."""
    theirs = node("Conv", ["x", "w"], ["y"], domain="com.example")
    facts = model_facts(model_of([theirs, node("MatMulBnb4", ["x", "w"], ["v"], domain="com.microsoft")], WEIGHTS))
    assert facts.nodes == ()
    assert facts.not_understood == ("operator com.example::Conv", "operator com.microsoft::MatMulBnb4")


def test_operators_that_hold_code_are_risks():
    nodes = [
        node("EPContext", ["x"], ["y"], domain="com.microsoft", ep_cache_context="compiled.bin"),
        node("PythonOp", ["x"], ["v"], domain="com.microsoft", func_name="os.system"),
    ]
    assert [(risk.kind, risk.detail) for risk in model_facts(model_of(nodes, {})).risks] == [
        ("compiled_code", "operator com.microsoft::EPContext"),
        ("operator", "operator com.microsoft::PythonOp calls a Python function by its name"),
    ]


def test_weights_that_are_no_plain_bytes_are_told():
    listed = helper.make_tensor("w8", TensorProto.INT8, [4, 4], list(range(16)))
    nodes = [node("DequantizeLinear", ["w8", "s"], ["wf"]), node("MatMul", ["x", "wf"], ["y"])]
    facts = model_facts(model_of(nodes, {"s": SCALE}, tensors=[listed]))
    assert facts.not_understood == ("values of w8, which are not there as plain bytes",)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_case_15_a_bias_that_does_not_fit_is_read_as_it_is(dtype):
    """Its scale is x's times w's: 0.5 * 7.843e-10; 5.0 of them is more than int32 holds, and the file was clamped."""
    scale = np.float32(0.5 * 7.843e-10)
    nodes = [
        *before(),
        node("DequantizeLinear", ["w15", "w15s"], ["wf"]),
        node("DequantizeLinear", ["b15", "b15s"], ["bf"]),
        node("Gemm", ["xf", "wf", "bf"], ["y"], transB=1),
    ]
    arrays = {
        "w15": np.ones((2, 4), dtype),
        "w15s": np.float32(7.843e-10),
        "b15": np.array([2**31 - 1, -(2**31)], np.int32),
        "b15s": scale,
    }
    of_bias = quantization(only(nodes, **arrays), Role.BIAS)
    assert (of_bias.scale, of_bias.qmin, of_bias.qmax) == ((scale,), -(2**31), 2**31 - 1)
