"""Operators stand in one row: those of subgraphs and called functions too, with the names of the graph around them."""

import io

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from qtool.errors import FileFormatError
from qtool.readers.onnx_messages import TensorMessage, read_model
from qtool.readers.onnx_program import program_of
from qtool.readers.source import Source
from tests.attacks.onnx_models import field
from tests.attacks.onnx_models import nested as deep
from tests.readers.onnx_models import model_facts, model_of, nodes_of, shape_of_weight

W = np.ones((4, 3, 1, 1), np.float32)


def program(data, max_operations=1000):
    return program_of(read_model(Source(io.BytesIO(data), "a", len(data)), ""), max_operations)


def conv(name="conv", weight="w"):
    return helper.make_node("Conv", ["x", weight], ["y"], name=name)


def if_of(graph, other=None):
    return helper.make_node("If", ["c"], ["y"], name="if", then_branch=graph, else_branch=other or graph)


def branch(*nodes, arrays=None, name="g"):
    weights = [numpy_helper.from_array(array, name) for name, array in (arrays or {}).items()]
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info("y")], weights)


def test_names_attributes_inputs_and_outputs_are_onnxs():
    node = helper.make_node("Op", ["a", "", "b"], ["y"], name="n", i=-3, f=0.5, s="word", ints=[1, -2], floats=[1.5])
    node.metadata_props.add(key="qtool.node", value="stem")
    node.metadata_props.add(key="other", value="left out")
    data = model_of([node], {})
    (read,) = read_model(Source(io.BytesIO(data), "a", len(data)), "").graph.nodes
    assert (read.name, read.domain, read.op, read.inputs, read.outputs) == ("n", "", "Op", ("a", "", "b"), ("y",))
    assert read.attributes == {"i": -3, "f": 0.5, "s": "word", "ints": (1, -2), "floats": (1.5,)}
    assert read.words == {"qtool.node": "stem"}


def test_a_subgraph_reads_the_names_around_it():
    inner = branch(conv("inner"))
    found = nodes_of(model_of([if_of(inner, branch(conv("else")))], {"w": W}))
    assert list(found) == ["if/else_branch/else", "if/then_branch/inner"]
    assert shape_of_weight(found["if/then_branch/inner"]) == (4, 3, 1, 1)


def test_two_subgraphs_may_use_one_name_for_two_values():
    narrow, wide = (branch(conv(), arrays={"w": np.ones((4, size, 1, 1), np.float32)}) for size in (1, 2))
    found = nodes_of(model_of([if_of(narrow, wide)], {"w": W}))
    assert {name: shape_of_weight(node)[1] for name, node in found.items()} == {
        "if/then_branch/conv": 1,
        "if/else_branch/conv": 2,
    }


def function(name, nodes, attributes=(), defaults=()):
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("me", 1)]
    return helper.make_function("me", name, ["x", "w"], ["y"], nodes, opsets, list(attributes), list(defaults))


def call(name="call", function="f", **attributes):
    return helper.make_node(function, ["x", "w"], ["y"], name=name, domain="me", **attributes)


def grouped(name="conv"):
    node = conv(name)
    node.attribute.add(name="group", ref_attr_name="number", type=onnx.AttributeProto.INT)
    return node


def test_a_function_is_written_out_with_its_arguments():
    body = function("f", [grouped()], ["number"])
    (node,) = nodes_of(model_of([call(number=3)], {"w": W}, functions=[body])).values()
    assert (node.name, node.groups, shape_of_weight(node)) == ("call/conv", 3, (4, 3, 1, 1))


def test_a_function_has_values_for_what_its_caller_leaves_out():
    body = function("f", [grouped()], [], [helper.make_attribute("number", 2)])
    assert [node.groups for node in model_facts(model_of([call()], {"w": W}, functions=[body])).nodes] == [2]
    assert [node.groups for node in model_facts(model_of([call(number=5)], {"w": W}, functions=[body])).nodes] == [5]


def test_the_tensors_of_a_function_are_there_once():
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(W))
    functions = [function("f", [constant, conv(weight="k")])]
    found = model_facts(model_of([call("a"), call("b")], {}, functions=functions))
    assert [node.name for node in found.nodes] == ["a/conv", "b/conv"]
    assert [tensor.name for tensor in found.tensors] == ["k"]


def test_functions_call_functions():
    functions = [function("f", [call("inner", "g")]), function("g", [conv()])]
    assert list(nodes_of(model_of([call()], {"w": W}, functions=functions))) == ["call/inner/conv"]


def test_a_function_that_calls_itself_is_cut_short_and_told():
    found = model_facts(model_of([call()], {"w": W}, functions=[function("f", [call("again")])]))
    assert found.not_understood == ("functions and subgraphs that run each other deeper than 32",)


def test_functions_that_call_each_other_ever_more_often_are_cut_short():
    functions = [function(f"f{i}", [call(f"{j}", f"f{i + 1}") for j in range(9)]) for i in range(20)]
    found = program(model_of([call(function="f0")], {"w": W}, functions=functions), max_operations=500)
    assert found.left_out == ("what is run after 501 operators",)


def nested(depth):
    graph = branch(conv())
    for _ in range(depth):
        graph = branch(if_of(graph, branch(name="none")))
    return model_of([if_of(graph)], {"w": W})


def test_deep_subgraphs_are_cut_short():
    assert model_facts(nested(10)).nodes[0].name == "if/else_branch/" + "if/then_branch/" * 10 + "conv"
    by_hand = field(1, 8) + field(7, deep(100))  # protobuf itself writes no more than 33
    assert model_facts(by_hand).not_understood == ("functions and subgraphs that run each other deeper than 32",)


def test_more_operators_than_a_small_file_may_have_are_an_error(monkeypatch):
    monkeypatch.setattr("qtool.readers.onnx_messages.MAX_PARTS", 3)
    with pytest.raises(FileFormatError, match="more than 3 operators has more parts than are read"):
        program(model_of([conv()] * 4, {}))
    with pytest.raises(FileFormatError, match="more than 3 tensors"):
        program(model_of([], {f"w{i}": W[:, :, 0, 0] for i in range(4)}))


def test_tensors_in_attributes_are_tensors_of_the_model():
    value = numpy_helper.from_array(W, "anything")
    constant = helper.make_node("Constant", [], ["w"], value=value)
    found = program(model_of([constant, conv()], {}))
    ((number, tensor),) = found.tensors.items()
    assert found.names[number] == "w"
    assert isinstance(tensor, TensorMessage)
    assert shape_of_weight(nodes_of(model_of([constant, conv()], {}))["conv"]) == W.shape
    other = helper.make_node("ConstantOfShape", ["s"], ["y"], name="n", value=value)
    assert [tensor.name for tensor in model_facts(model_of([other], {})).tensors] == ["n.value"]


def test_sparse_tensors_and_training_are_told():
    proto = onnx.load_from_string(model_of([conv()], {"w": W}))
    values = helper.make_tensor("sparse", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("at", onnx.TensorProto.INT64, [2], [3, 7])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10]))
    proto.training_info.add()
    found = model_facts(proto.SerializeToString())
    assert found.not_understood == ("sparse tensor sparse", "the graphs that train the model")
    assert [tensor.name for tensor in found.tensors] == ["w", "sparse", "at"]


def test_a_node_has_the_module_path_that_torch_wrote():
    node = conv("node_conv2d_7")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'features', 'features.0', 'conv2d']")
    assert list(nodes_of(model_of([node], {"w": W}))) == ["features.0"]
    node.metadata_props.add(key="qtool.node", value="stem")
    assert list(nodes_of(model_of([node], {"w": W}))) == ["stem"]
    assert list(nodes_of(model_of([conv("a"), conv("a"), conv("")], {"w": W}))) == ["a", "a.2", "y"]


def test_a_name_that_torch_made_up_gives_way_to_the_modules():
    nodes = [conv("node_conv2d_1", "stem.0.weight"), conv("node_conv2d_2", "w"), conv("mine", "b.weight")]
    found = nodes_of(model_of(nodes, {"stem.0.weight": W, "w": W, "b.weight": W}))
    assert list(found) == ["stem.0", "node_conv2d_2", "mine"]
