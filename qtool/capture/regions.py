"""Inline the regions that torch.export makes of `with torch.enable_grad():` and `with torch.autocast(...):`.

    y = region(enabled, graph, x)        before
    y = conv(x)                          after: the ops of the region's own graph, in place

Autocast that is off changes nothing. In a training graph, what enters a region without gradients is detached:

    t = region(False, graph, x)          before
    t = conv(detach(x), detach(w))       after
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node, map_arg

from qtool.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast

GRAPH_ARGUMENT: Mapping[Any, int] = {_GRAD: 1, _AUTOCAST: 4}
"""Where a region's graph stands among its arguments; what it reads follows."""


def inline_regions(module: GraphModule) -> GraphModule:
    """Replace every region by its ops, those in regions too; returns its argument, edited.

    Raises:
        CaptureError: a region turns autocast on; its ops would not be float32.
    """
    for node in list(module.graph.nodes):
        position = GRAPH_ARGUMENT.get(node.target)
        if position is None:
            continue
        _check_float32(node)
        region: Any = node.args[position]
        path = str(region.target)
        inner, operands = module.get_submodule(path), node.args[position + 1 :]
        if node.target is _GRAD and not node.args[0]:
            _check_no_gradients(inner)  # type: ignore[arg-type]
            operands = _detached(module, node, operands)
        _inline(module, node, inline_regions(inner), path, operands)  # type: ignore[arg-type]
    module.graph.lint()
    module.recompile()
    return module


def _check_float32(node: Node) -> None:
    if node.target is not _AUTOCAST:
        return
    device, dtype, is_enabled = node.args[:3]
    if is_enabled and device == "cpu":
        name = str(dtype or "bfloat16").removeprefix("torch.")
        msg = (
            f"the model turns on autocast to {name} in its own code; qtool quantizes float32 models: "
            f"leave the `with torch.autocast(...)` out"
        )
        raise CaptureError(msg)


def _check_no_gradients(region: GraphModule) -> None:
    """Refuse gradients that are turned on again where they are off."""
    for node in region.graph.nodes:
        if node.target is _GRAD and node.args[0]:
            msg = (
                "the model turns gradients on inside `with torch.no_grad():` in its own code, which cannot be trained; "
                "leave one of the two out"
            )
            raise CaptureError(msg)


def _detached(module: GraphModule, node: Node, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    with module.graph.inserting_before(node):
        return tuple(_detach(module, operand) for operand in operands)


def _detach(module: GraphModule, operand: Any) -> Any:  # noqa: ANN401 - an argument of a node
    if not isinstance(operand, Node) or not isinstance(operand.meta.get("val"), torch.Tensor):
        return operand
    made = module.graph.call_function(torch.ops.aten.detach.default, (operand,))
    made.meta["val"] = operand.meta["val"]
    return made


def _inline(module: GraphModule, node: Node, region: GraphModule, path: str, operands: tuple[Any, ...]) -> None:
    """Copy the region's ops before the node, and let its readers read their results."""
    made: dict[Node, Any] = {}
    remaining = iter(operands)
    outputs: Any = None
    with module.graph.inserting_before(node):
        for inner in region.graph.nodes:
            if inner.op == "placeholder":
                made[inner] = next(remaining)
            elif inner.op == "output":
                outputs = map_arg(inner.args[0], made.__getitem__)
            else:
                made[inner] = module.graph.node_copy(inner, made.__getitem__)
                if inner.op == "get_attr":
                    made[inner].target = f"{path}.{inner.target}"
    _replace(node, outputs)


def _replace(node: Node, outputs: Any) -> None:  # noqa: ANN401
    for reader in list(node.users):
        if reader.target is operator.getitem:
            reader.replace_all_uses_with(outputs[reader.args[1]])
            reader.graph.erase_node(reader)
    if node.users:
        node.replace_all_uses_with(outputs)
    node.graph.erase_node(node)
