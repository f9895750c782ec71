"""Models of other programs: what onnx and ONNX Runtime read of a file is what the facts say."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import BITS, Compute, Role
from qtool.types import Op
from tests.readers.onnx_models import model_facts, model_of, quantization
from tests.readers.onnx_producers import TYPES, arrays, dynamic, float_model, four_bits, static

OPS = {
    "conv": Op.CONV2D,
    "depthwise": Op.CONV2D,
    "add": Op.ADD,
    "pool": Op.MAX_POOL,
    "transposed": Op.CONV_TRANSPOSE2D,
    "sigmoid": Op.SIGMOID,
    "mean": Op.AVG_POOL,
    "flatten": Op.LAYOUT,
    "matmul": Op.LINEAR,
    "plus": Op.ADD,
    "gemm": Op.LINEAR,
}
DTYPES = {"u8": "uint8", "s8": "int8", "s16": "int16", "s4": "int4"}
FLOAT_WEIGHTS = {"conv": "w1", "depthwise": "w2", "transposed": "wt", "matmul": "wl", "gemm": "wg"}
DEBIAN = Path("/usr/share/libonnx-testdata/data")
OF_ONNX = Path(onnx.__file__).parent / "backend" / "test" / "data"


def by_name(facts):
    return {node.name.removesuffix("_quant"): node for node in facts.nodes}


def real_numbers(operand, blocks):
    """What the codes of a stored weight stand for, by the facts alone."""
    tensor, how = operand.tensor, operand.quantization
    assert tensor.dtype in ("int8", "uint8")
    codes = np.frombuffer(b"".join(blocks(tensor.place)), tensor.dtype).reshape(tensor.shape).astype(np.float64)
    scale, zero_point = np.array(how.scale), np.array(how.zero_point or 0.0)
    if how.axis is not None:
        shape = [-1 if axis == how.axis else 1 for axis in range(codes.ndim)]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    return (codes - zero_point) * scale


def check_weights(path, names):
    """Weights times scales must be the float weights again, to half a step and what range reduction costs."""
    with opened_model(path) as model:
        nodes = by_name(model.facts.model)
        for name in names:
            node, expected = nodes[name], arrays()[FLOAT_WEIGHTS[name]]
            assert node.is_weight_in_out == (name == "matmul")
            found = real_numbers(node.operand(Role.WEIGHT), model.blocks)
            steps = np.max(node.operand(Role.WEIGHT).quantization.scale)
            assert np.abs(found - expected).max() <= 0.51 * steps, name


def check_static(path, form, activations, weights, *, per_channel):
    facts = model_facts(path)
    assert facts.producer.startswith("onnx.quantize")
    assert facts.form == {"qdq": "QDQ graph, opset 21", "qoperator": "QOperator graph, opset 21"}[form]
    assert not facts.not_understood
    nodes = by_name(facts)
    assert {name: nodes[name].op for name in OPS} == OPS
    # Its QOperator form knows no ConvTranspose.
    in_float = {"transposed"} if form == "qoperator" else set()
    assert {name for name in OPS if nodes[name].compute is not Compute.STATIC} == in_float
    for name in set(OPS) - in_float:
        for role in (Role.INPUT, Role.OUTPUT):
            found = quantization(nodes[name], role)
            assert (found.dtype, found.axis) == (DTYPES[activations], None)
            assert (len(found.scale), len(found.zero_point)) == (1, 1)
    for name in set(FLOAT_WEIGHTS) - in_float:
        found = quantization(nodes[name], Role.WEIGHT)
        # Weights of convolutions per channel are int8 in the QOperator form, whatever is asked for.
        is_forced = form == "qoperator" and per_channel and name in ("conv", "depthwise")
        assert found.dtype == ("int8" if is_forced else DTYPES[weights])
        axis = {"transposed": 1, "matmul": 1}.get(name, 0) if per_channel else None
        assert found.axis == axis
    assert quantization(nodes["conv"], Role.BIAS).dtype == "int32"
    assert (nodes["conv"].groups, nodes["depthwise"].groups) == (1, 8)
    assert [name.removesuffix("_quant") for name in nodes["add"].reads] == ["conv", "depthwise"]
    check_weights(path, set(FLOAT_WEIGHTS) - in_float)


@pytest.mark.parametrize(
    ("form", "types", "per_channel", "reduce_range"),
    list(itertools.product(["qdq", "qoperator"], ["u8 s8", "s8 s8", "u8 u8"], [False, True], [False, True])),
)
def test_quantized_by_onnxruntime_in_every_form(tmp_path, form, types, per_channel, reduce_range):
    activations, weights = types.split()
    options = {"per_channel": per_channel, "reduce_range": reduce_range}
    path = static(tmp_path, form, activations=activations, weights=weights, **options)
    check_static(path, form, activations, weights, per_channel=per_channel)


@pytest.mark.parametrize(("activations", "weights"), [("s16", "s8"), ("u8", "s4")])
def test_other_widths(tmp_path, activations, weights):
    path = static(tmp_path, "qdq", activations=activations, weights=weights, op_types_to_quantize=["MatMul", "Gemm"])
    node = by_name(model_facts(path))["matmul"]
    found = quantization(node, Role.WEIGHT)
    assert (found.dtype, node.operand(Role.WEIGHT).tensor.dtype) == (DTYPES[weights], DTYPES[weights])
    assert quantization(node, Role.INPUT).dtype == DTYPES[activations]
    assert set(TYPES) == set(DTYPES)


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamically_quantized_by_onnxruntime(tmp_path, per_channel):
    path = dynamic(tmp_path, per_channel=per_channel)
    facts = model_facts(path)
    assert facts.form == "dynamically quantized graph, opset 21"
    nodes = by_name(facts)
    assert {name: (nodes[name].target, nodes[name].compute) for name in ("conv", "matmul")} == {
        "conv": ("ConvInteger", Compute.DYNAMIC),
        "matmul": ("MatMulInteger", Compute.DYNAMIC),
    }
    of_input = quantization(nodes["matmul"], Role.INPUT)
    assert (of_input.dtype, of_input.qmin, of_input.qmax, of_input.scale) == ("uint8", 0, 255, None)
    assert nodes["matmul"].operand(Role.BIAS).tensor.name == "bl"
    assert nodes["transposed"].compute is Compute.FLOAT
    check_weights(path, ["conv", "depthwise", "matmul"])


@pytest.mark.parametrize("is_symmetric", [False, True])
def test_four_bits_in_blocks(tmp_path, is_symmetric):
    (node,) = model_facts(four_bits(tmp_path, is_symmetric=is_symmetric)).nodes
    assert (node.op, node.target, node.compute) == (Op.LINEAR, "com.microsoft::MatMulNBits", Compute.WEIGHT_ONLY)
    found = quantization(node, Role.WEIGHT)
    assert (found.dtype, found.qmax, found.group_size, len(found.scale)) == ("uint4", 15, 32, 64 * 128 // 32)
    assert found.zero_point == ((8,) if is_symmetric else None)
    assert node.note == "4-bit codes packed into bytes, 64 x 128"


def test_a_float_model_is_not_quantized():
    facts = model_facts(float_model().SerializeToString())
    assert {node.compute for node in facts.nodes} == {Compute.FLOAT}
    assert {node.name for node in facts.nodes} == set(FLOAT_WEIGHTS)
    assert all(operand.quantization is None for node in facts.nodes for operand in node.operands)
    assert facts.form == "opset 21"


def test_an_lstm_of_onnxruntime():
    weights = np.zeros((1, 3, 16), np.int8), np.zeros((1, 4, 16), np.int8)
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    lstm = onnx.helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y"], name="lstm", domain="com.microsoft", hidden_size=4
    )
    scales = {"ws": np.full((1, 16), 0.5, np.float32), "rs": np.full((1, 16), 0.25, np.float32)}
    zeros = {"wz": np.zeros((1, 16), np.int8), "rz": np.zeros((1, 16), np.int8)}
    values = {"w": weights[0], "r": weights[1], "b": np.zeros((1, 32), np.float32), **scales, **zeros}
    (node,) = model_facts(model_of([lstm], values)).nodes
    assert (node.compute, node.is_weight_in_out) == (Compute.DYNAMIC, True)
    assert [quantization(node, Role.WEIGHT, i).scale[0] for i in (0, 1)] == [0.5, 0.25]
    assert [quantization(node, Role.WEIGHT, i).axis for i in (0, 1)] == [2, 2]


def every_tensor(graph):
    """The initializers and constants of a graph and of those in it."""
    found = [tensor for tensor in graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                found.append(attribute.t)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found += every_tensor(inner)
    return found


def agrees_with_onnx(path):
    """A file is read, and every tensor in it is onnx's."""
    proto = onnx.load(path)
    with opened_model(path) as model:
        facts = model.facts.model
        if proto.functions:  # written out at each call
            return
        tensors = every_tensor(proto.graph)
        sparse = sum(line.startswith("sparse") for line in facts.not_understood)
        assert len(facts.tensors) == len(tensors) + 2 * sparse
        contents = {numpy_helper.to_array(t).tobytes() for t in tensors if t.data_type != onnx.TensorProto.STRING}
        for tensor in facts.tensors:
            if tensor.place is not None and BITS[tensor.dtype] >= 8:
                assert b"".join(model.blocks(tensor.place)) in contents


def test_every_model_of_onnxs_tests():
    """Those of Debian's libonnx-testdata; without the package, those that onnx itself brings."""
    paths = sorted(DEBIAN.rglob("*.onnx")) or sorted(OF_ONNX.rglob("*.onnx"))
    assert len(paths) > 100
    for path in paths:
        agrees_with_onnx(path)


def test_a_model_that_is_cut_off_is_an_error():
    data = float_model().SerializeToString()
    for percent in range(1, 100, 9):
        with pytest.raises(FileFormatError), opened_model(data[: len(data) * percent // 100]):
            pass
