"""Convolutions that give their padding as a word: it becomes numbers, and a pad where both sides differ.

conv2d(x, w, padding="same")              before
conv2d(pad(x, (1, 2)), w, padding=0)      after, for a kernel of 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

aten = torch.ops.aten

SPATIAL_RANK: dict[Any, int] = {aten.conv1d.padding: 1, aten.conv2d.padding: 2, aten.conv3d.padding: 3}
_WITH_NUMBERS: dict[Any, Any] = {
    aten.conv1d.padding: aten.conv1d.default,
    aten.conv2d.padding: aten.conv2d.default,
    aten.conv3d.padding: aten.conv3d.default,
}


def make_padding_explicit(module: GraphModule) -> None:
    """Edit the module's graph so that every convolution has its padding in numbers."""
    for node in list(module.graph.nodes):
        if node.target in SPATIAL_RANK:
            _make_explicit(node)


def _make_explicit(node: Node) -> None:
    rank = SPATIAL_RANK[node.target]
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    defaults = (None, None, None, 1, "valid", 1, 1)
    given = {**dict(zip(names, defaults, strict=True)), **dict(zip(names, node.args, strict=False)), **node.kwargs}
    strides, dilations = _per_dimension(given["stride"], rank), _per_dimension(given["dilation"], rank)
    kernel = given["weight"].meta["val"].shape[2:]  # type: ignore[union-attr]
    totals = [d * (k - 1) if given["padding"] == "same" else 0 for d, k in zip(dilations, kernel, strict=True)]
    source: Any = given["input"]
    if any(total % 2 for total in totals):
        source, totals = _padded(node, source, totals), [0] * rank
    node.args = (
        source, given["weight"], given["bias"], strides, [total // 2 for total in totals], dilations,
        given["groups"],
    )  # fmt: skip
    node.kwargs = {}
    node.target = _WITH_NUMBERS[node.target]


def _per_dimension(argument: Any, rank: int) -> list[int]:  # noqa: ANN401 - an argument of the node
    values = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    return values * rank if len(values) == 1 else values


def _padded(node: Node, source: Node, totals: list[int]) -> Node:
    """Append a pad before the convolution; the odd one more is on the right, as torch has it."""
    amounts = [amount for total in reversed(totals) for amount in (total // 2, total - total // 2)]
    with node.graph.inserting_before(node):
        made = node.graph.call_function(aten.pad.default, (source, amounts))
    made.meta = {**node.meta, "val": aten.pad.default(source.meta["val"], amounts)}
    return made
