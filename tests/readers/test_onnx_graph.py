"""An ONNX model is read with the standard library alone: the same as onnx reads, whole or damaged."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.readers import onnx_messages
from qtool.readers.any_file import opened_model
from qtool.readers.marks import NodeMark
from qtool.types import Isa, Op

STAMPED = {
    "qtool.node": "stem",
    "qtool.backend": "fbgemm,x86",
    "qtool.reduce_range": "true",
    "qtool.op": "conv2d",
    "qtool.isa": "any",
    "qtool.qmin": "0",
    "qtool.qmax": "127",
}


def model(words=STAMPED, metadata=None, op="Conv"):
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"]),
        onnx.helper.make_node(op, ["x", "f"], ["y"]),
    ]
    for key, value in words.items():
        nodes[1].metadata_props.add(key=key, value=value)
    weights = [
        onnx.numpy_helper.from_array(np.ones((8, 4, 3, 3), np.int8), "w"),
        onnx.numpy_helper.from_array(np.ones(8, np.float32), "s"),
        onnx.numpy_helper.from_array(np.zeros(8, np.int8), "z"),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4, 9, 9]) for name in "xy")
    proto = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], weights))
    onnx.helper.set_model_props(proto, metadata or {})
    return proto.SerializeToString()


def read(data):
    with opened_model(data) as model:
        return model.facts


def test_what_it_says_and_holds():
    found = read(model(metadata={"author": "me", "qtool.stamp": "{}"}))
    assert found.stamp_problem.kind == "unreadable"
    (mark,) = found.graph.marks.nodes
    assert mark == NodeMark(
        name="stem", backends=("fbgemm", "x86"), reduce_range=True, op=Op.CONV2D, isa=Isa.ANY, qmin=0, qmax=127
    )
    assert (found.graph.num_int8_layers, found.graph.num_unmarked) == (1, 0)


@pytest.mark.parametrize("op", ["Conv", "QLinearConv", "MatMul", "Gemm"])
def test_a_layer_that_says_nothing_is_counted(op):
    graph = read(model({}, op=op)).graph
    assert (graph.num_int8_layers, graph.num_unmarked) == (1, 1)
    assert not graph.marks


def test_a_file_is_read_like_its_bytes(tmp_path):
    (tmp_path / "a.onnx").write_bytes(model())
    with opened_model(tmp_path / "a.onnx") as of_path, opened_model(model()) as of_bytes:
        assert (of_path.facts.kind, of_path.facts.num_bytes) == ("onnx", len(model()))
        assert of_path.facts.graph == of_bytes.facts.graph


def test_a_damaged_file_is_an_error():
    data = bytearray(model())
    data[data.index(b"DequantizeLinear") - 1] = 0xFF  # the size of the op's name
    with pytest.raises(FileFormatError, match="looks like an ONNX file, but is damaged"):
        read(bytes(data))


@given(st.integers(0, len(model()) - 1), st.integers(0, 255))
def test_no_change_of_a_byte_breaks_it(place, byte):
    data = bytearray(model())
    data[place] = byte
    try:
        read(bytes(data))
    except FileFormatError:
        return


def test_the_number_of_parts_is_bounded(monkeypatch):
    monkeypatch.setattr(onnx_messages, "MAX_FIELDS", 20)
    monkeypatch.setattr(onnx_messages, "BYTES_PER_FIELD", 10**9)
    with pytest.raises(FileFormatError, match="more than 20 parts"):
        read(model())
