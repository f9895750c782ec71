"""What an op of opset 18 looked like before: what is an input now was an attribute, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _axes_as_attribute(node: ir.Node) -> None:
    """Say in an attribute what is reduced; axes that are computed stay an input, which the older op does not take."""
    value = node.inputs[1] if len(node.inputs) == 2 else None
    if value is not None and value.const_value is not None:
        axes = [int(axis) for axis in value.const_value.numpy()]
        node.resize_inputs(1)
        node.attributes["axes"] = ir.AttrInt64s("axes", axes)


def _number_as_sizes(node: ir.Node) -> None:
    """Say the sizes of the parts of a Split instead of their number; where a size is dynamic the number stays."""
    axis = node.attributes.get_int("axis", 0)
    sizes = [value.shape[axis] for value in node.outputs if value.shape is not None]
    known = [size for size in sizes if isinstance(size, int)]
    if "num_outputs" in node.attributes and len(known) == len(node.outputs):
        del node.attributes["num_outputs"]
        node.resize_inputs(2)
        node.replace_input_with(1, _constant(node, "sizes", known))


def _ends_as_slice(node: ir.Node) -> None:
    """Say which sizes of a Shape are meant in a Slice behind it."""
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", np.iinfo(np.int64).max)
    node.attributes.clear()
    if (start, end) == (0, np.iinfo(np.int64).max):
        return
    (sizes,) = node.outputs
    inputs = [sizes, _constant(node, "start", [start]), _constant(node, "end", [end])]
    cut = ir.node("Slice", inputs, name=f"{node.name}_slice")
    (result,) = cut.outputs
    result.type, result.shape, sizes.shape = sizes.type, sizes.shape, None
    sizes.replace_all_uses_with(result, replace_graph_outputs=True)
    cut.replace_input_with(0, sizes)
    cut.meta["stamp"] = node.meta.get("stamp", {})
    assert node.graph is not None
    node.graph.insert_after(node, cut)


def _zero_as_copy(node: ir.Node) -> None:
    """Let a 0 in the shape of a Reshape stand for the size of its input, which it does where a batch is empty.

    A written 0 keeps `allowzero`, which the older op does not have.
    """
    shape = node.inputs[1].const_value if node.inputs[1] is not None else None
    if shape is None or 0 not in shape.numpy():
        node.attributes.pop("allowzero", None)


def _constant(node: ir.Node, word: str, numbers: Sequence[int]) -> ir.Value:
    graph = node.graph
    assert isinstance(graph, ir.Graph)  # functions are inlined
    tensor = ir.tensor(np.array(numbers, dtype=np.int64), name=f"{node.outputs[0].name}_{word}")
    value = ir.Value(
        name=tensor.name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape([len(numbers)])
    )
    graph.register_initializer(value)
    return value


_REDUCTIONS: Final = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip

OLDER_FORMS: Final[Mapping[str, tuple[int, Callable[[ir.Node], None]]]] = {
    **dict.fromkeys(_REDUCTIONS, (18, _axes_as_attribute)),
    "Split": (18, _number_as_sizes),
    "Reshape": (14, _zero_as_copy),
    "Shape": (15, _ends_as_slice),
}
"""By op, the opset that it got its form of today in, and what gives a node the form of before, in place.

Source: the versions of each op in onnx's Operators.md.
"""
