"""Older opsets: torch writes opset 18 at the oldest, and each op of it is said here in the words of an older one.

onnx's own converter has no way down for Reshape, Pad, Split and others, and leaves attributes behind that the older
opset does not know (onnx 1.23, `noop_with_empty_axes` of ReduceMean).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as ir_passes

from qtool.errors import ModelError
from qtool.exporters.onnx.older_forms import OLDER_FORMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx.defs import OpSchema


def in_opset(model: ir.Model, opset: int) -> None:
    """Write a model in an opset, in place; the nodes keep their `meta["stamp"]`.

    Args:
        model: in that opset already, or in a newer one.
        opset: the opset.

    Raises:
        ModelError: an op of the model cannot be said in that opset; the message names the oldest in which all can.
    """
    ir_passes.InlinePass()(model)
    found = model.graph.opset_imports[""]
    for node in list(model.graph.all_nodes()):
        if node.op_type in OLDER_FORMS:
            since, to_older_form = OLDER_FORMS[node.op_type]
            if opset < since:
                to_older_form(node)
    _check_can_be_said(list(model.graph.all_nodes()), opset, found)
    model.graph.opset_imports[""] = opset
    for node in model.graph.all_nodes():
        _remove_unknown_attributes(node, opset)
    for clean in (
        ir_passes.RemoveUnusedNodesPass(),
        ir_passes.RemoveUnusedFunctionsPass(),
        ir_passes.RemoveUnusedOpsetsPass(),
    ):
        clean(model)


def _check_can_be_said(nodes: Sequence[ir.Node], opset: int, newest: int) -> None:
    """Check every node, so that the opset which is named is right for all of them."""
    oldest, what = opset, ""
    for node in nodes:
        while oldest < newest and not _can_be_said(node, oldest, newest):
            oldest, what = oldest + 1, f"{node.op_type} as it stands at {node.name!r}"
    if newest < opset:
        msg = f"torch writes this model in opset {newest} and no newer one: use --opset {newest}"
        raise ModelError(msg)
    if oldest != opset:
        msg = f"the model cannot be written in opset {opset}: {what} needs opset {oldest}; use --opset {oldest}"
        raise ModelError(msg)


def _can_be_said(node: ir.Node, opset: int, written: int) -> bool:
    """Return whether an opset has the op that was written in another, and in it its inputs, dtypes and attributes."""
    schema = _schema(node, opset)
    if schema is None or schema.deprecated:
        return False
    inputs = [value for value in node.inputs if value is not None]
    if not schema.min_input <= len(inputs) or len(node.inputs) > schema.max_input:
        return False
    values = [(schema.inputs, index, value) for index, value in enumerate(node.inputs)]
    values += [(schema.outputs, index, value) for index, value in enumerate(node.outputs)]
    return all(_takes(slots, index, value) for slots, index, value in values) and all(
        name in schema.attributes or _is_default(node, name, written) for name in node.attributes
    )


def _takes(slots: Sequence[OpSchema.FormalParameter], index: int, value: ir.Value | None) -> bool:
    """Return whether a dtype is one of those that an op had there; the last slot may stand for many."""
    if value is None or not isinstance(value.type, ir.TensorType):
        return True
    return f"tensor({value.type.dtype.name.lower()})" in slots[min(index, len(slots) - 1)].types


def _remove_unknown_attributes(node: ir.Node, opset: int) -> None:
    """Remove the attributes that the op did not have yet: `_can_be_said` has seen that they say what it did anyway."""
    schema = _schema(node, opset)
    if schema is not None:
        for name in [name for name in node.attributes if name not in schema.attributes]:
            del node.attributes[name]


def _is_default(node: ir.Node, name: str, opset: int) -> bool:
    """Return whether an attribute says no more than what an opset takes for granted."""
    schema = _schema(node, opset)
    default = schema.attributes[name].default_value if schema is not None and name in schema.attributes else None
    if default is None or not default.name:
        return False
    return bool(_plain(onnx.helper.get_attribute_value(default)) == _plain(node.attributes[name].value))


def _plain(value: Any) -> Any:  # noqa: ANN401 - of an attribute, which is a number, a word or a list of them
    return value.decode() if isinstance(value, bytes) else value


def _schema(node: ir.Node, opset: int) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
