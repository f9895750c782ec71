"""Marks in the graph of a .pt2, whichever carrier has them; layers without one; and no file breaks the reader."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.readers.archive import read_archive
from qtool.readers.marks import FileMark, NodeMark, encode
from qtool.readers.program_marks import program_facts
from qtool.types import Isa, Op, Stage
from tests.readers.sample_files import GRAPH, zip_bytes

GUARDED = NodeMark(name="stem", backends=("fbgemm",), reduce_range=True, op=Op.CONV2D, isa=Isa.ANY, qmin=0, qmax=127)
FILE = FileMark(stage=Stage.EXPORTED, backends=("fbgemm",), isa=Isa.ANY, stamp="0" * 64)


def tensor(name):
    return {"as_tensor": {"name": name}}


def op(target, reads, makes, custom=None, text=None):
    inputs = [{"name": "x", "arg": tensor(name)} for name in reads]
    if text is not None:
        inputs.append({"name": "assert_msg", "arg": {"as_string": text}})
    metadata = {} if custom is None else {"custom": json.dumps({"qtool": custom})}
    return {"target": f"torch.ops.aten.{target}", "inputs": inputs, "outputs": [tensor(makes)], "metadata": metadata}


def guard(mark):
    return op("_assert_async.msg", ["b_qtool_guard"], "nothing", text=mark if isinstance(mark, str) else encode(mark))


def layer(number, custom=None, target="conv2d.default"):
    """The ops of a layer with an int8 weight."""
    return [
        op("_to_copy.default", [f"w{number}"], f"float{number}"),
        op("mul.Tensor", [f"float{number}", "scale"], f"weight{number}"),
        op(target, ["x", f"weight{number}"], f"y{number}", custom),
        op("linear.default", [f"y{number}", "v"], f"z{number}"),
    ]


def facts(*nodes, dtype=2, num_weights=2):
    names = [f"w{number}" for number in range(num_weights)]
    graph = {"nodes": list(nodes), "tensor_values": {name: {"dtype": dtype} for name in [*names, "x"]}}
    specs = [{"buffer": {"arg": {"name": name}, "buffer_name": name}} for name in names]
    specs.append({"user_input": {"arg": tensor("x")}})
    return facts_of({"graph_module": {"graph": graph, "signature": {"input_specs": specs}}})


def facts_of(model):
    with read_archive(zip_bytes({GRAPH: json.dumps(model).encode()})) as archive:
        return program_facts(archive)


def test_guards_and_the_layers_they_speak_of():
    found = facts(guard(FILE), guard(GUARDED), *layer(0))
    assert (found.marks.files, found.marks.nodes) == ((FILE,), (GUARDED,))
    assert (found.num_int8_layers, found.num_unmarked) == (1, 0)


def test_a_layer_without_a_guard_is_counted():
    found = facts(guard(GUARDED), *layer(0), *layer(1))
    assert (found.num_int8_layers, found.num_unmarked) == (2, 1)


@pytest.mark.parametrize(
    ("target", "pattern"), [("conv2d.default", Op.CONV2D), ("addmm.default", Op.LINEAR), ("bmm.default", None)]
)
def test_metadata_of_a_node_says_less(target, pattern):
    custom = {"node": "a b", "backend": "fbgemm,x86", "reduce_range": True}
    relu = op("relu.default", ["y0"], "r", custom)
    found = facts(*layer(0, custom, target), relu)
    (mark,) = found.marks.nodes
    assert mark == NodeMark(name="a b", backends=("fbgemm", "x86"), reduce_range=True, op=pattern)
    assert (found.num_int8_layers, found.num_unmarked) == (1, 0)


def test_a_guard_goes_before_metadata():
    found = facts(guard(GUARDED), *layer(0, {"node": "stem", "backend": "x", "reduce_range": False}))
    assert found.marks.nodes == (GUARDED,)


def test_float_weights_and_int8_inputs_are_no_int8_layers():
    assert facts(*layer(0), dtype=7).num_int8_layers == 0
    assert facts(op("conv2d.default", ["x", "v"], "y")).num_int8_layers == 0


@pytest.mark.parametrize("text", ["x must be positive", "qtool 1 node name=a", encode(GUARDED).replace("1", "9", 1)])
def test_other_assertions_are_not_taken_for_guards(text):
    assert not facts(guard(text)).marks


def test_edges_are_no_nodes():
    assert not facts(op("mul.Tensor", ["x"], "y", {"edge": "x"})).marks


KEYS = [
    "graph_module",
    "graph",
    "nodes",
    "inputs",
    "arg",
    "as_tensor",
    "as_tensors",
    "as_string",
    "metadata",
    "custom",
    "signature",
    "input_specs",
    "buffer",
    "name",
    "target",
    "qtool",
    "tensor_values",
    "outputs",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=30,
)


@given(JSON)
def test_no_json_breaks_it(model):
    facts_of(model)


def test_what_is_no_json_is_an_error():
    with read_archive(zip_bytes({GRAPH: b"{"})) as archive, pytest.raises(FileFormatError, match="not valid JSON"):
        program_facts(archive)


def test_a_mark_of_another_layer_of_the_same_name_is_another_mark():
    other = dataclasses.replace(GUARDED, qmax=255, reduce_range=False)
    assert facts(guard(GUARDED), guard(other)).marks.nodes == (GUARDED, other)
