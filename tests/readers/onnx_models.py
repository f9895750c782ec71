"""Small ONNX models, and what the reader says of them."""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper

from qtool.readers.any_file import opened_model
from qtool.readers.facts import Role

FLOAT = onnx.TensorProto.FLOAT


def model_of(nodes, arrays, *, inputs=("x",), outputs=("y",), functions=(), opset=21, tensors=()):
    """The bytes of a model with these nodes, and arrays as initializers by name."""
    initializers = [*(numpy_helper.from_array(array, name) for name, array in arrays.items()), *tensors]
    ends = [[helper.make_tensor_value_info(name, FLOAT, None) for name in names] for names in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, initializers)
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    proto = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    return proto.SerializeToString()


def model_facts(source):
    """What the reader says of the model in a file, or in its bytes."""
    with opened_model(source) as model:
        return model.facts.model


def nodes_of(source):
    """Its nodes by name."""
    return {node.name: node for node in model_facts(source).nodes}


def quantization(node, role, number=0):
    """How the operand of a node is quantized: the first of that role, or a later one."""
    return [operand for operand in node.operands if operand.role is role][number].quantization


def shape_of_weight(node):
    return node.operand(Role.WEIGHT).tensor.shape


def stored_bytes(source, model, tensor):
    """The bytes of a tensor, joined."""
    return b"".join(model.blocks(tensor.place))
