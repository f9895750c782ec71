"""Writing through a view without writing: what a base looks like after one of its views got a new value."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx
    from torch.fx import Node

aten = torch.ops.aten

RESHAPING = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten.contiguous.default,
        aten.alias.default,
        aten.detach.default,
        aten._unsafe_view.default,
        aten.view_as.default,
        aten.reshape_as.default,
    }
)
"""Ops whose result holds the base's elements in the base's order."""

SPLITS = frozenset({aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default})
"""Ops that cut a tensor into a list of slices."""


def write_through(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node | None:
    """Append the base's new value to `graph`: `base` with the elements that `view` shows replaced by `value`.

    Args:
        graph: the graph under construction.
        view: the node of the old graph that takes the view; its arguments say which elements.
        base: the base's present value, in `graph`.
        value: the view's new value, in `graph`.

    Returns:
        The new node, or None where the view has no known inverse.

    Example:
        `view = slice(base, dim=1, start=0, end=1)` gives `slice_scatter(base, value, 1, 0, 1)`.
    """
    if view.target in RESHAPING:
        return graph.call_function(aten.reshape_as.default, (value, base))
    rule = _RULES.get(view.target)
    return rule(graph, view, base, value) if rule else None


def _slice(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node:
    return graph.call_function(aten.slice_scatter.default, (base, value, *view.args[1:]))


def _select(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node:
    return graph.call_function(aten.select_scatter.default, (base, value, *view.args[1:]))


def _transpose(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node:
    del base
    return graph.call_function(aten.transpose.int, (value, *view.args[1:]))


def _t(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node:
    del view, base
    return graph.call_function(aten.t.default, (value,))


def _permute(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node:
    del base
    order: Any = view.args[1]
    rank = len(order)
    inverse = [0] * rank
    for position, axis in enumerate(order):
        inverse[axis % rank] = position
    return graph.call_function(aten.permute.default, (value, inverse))


def _piece(graph: fx.Graph, view: Node, base: Node, value: Node) -> Node | None:
    """A piece of what a split cut: `getitem(split(base, ...), i)`."""
    split: Any = view.args[0]
    if split.target not in SPLITS:
        return None
    index: Any = view.args[1]
    pieces = split.meta["val"]
    axis = _split_axis(split)
    sizes = [piece.shape[axis] for piece in pieces]
    if not all(isinstance(size, int) for size in sizes):
        return None
    start = sum(sizes[:index])
    return graph.call_function(aten.slice_scatter.default, (base, value, axis, start, start + sizes[index]))


def _split_axis(split: Node) -> int:
    if "dim" in split.kwargs:
        return int(split.kwargs["dim"])  # type: ignore[arg-type]
    return int(split.args[2]) if len(split.args) > 2 else 0  # type: ignore[arg-type]


_RULES: dict[Any, Callable[[fx.Graph, Node, Node, Node], Node | None]] = {
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.transpose.int: _transpose,
    aten.t.default: _t,
    aten.permute.default: _permute,
    operator.getitem: _piece,
}
