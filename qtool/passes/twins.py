"""Twins: which node of the training graph is which node of the eval graph.

Twins have the same op in the same module and read the same: twins again, or the same tensors of the model, with nothing
but ops that only train mode has in between. Train mode may do more of the same kind (noise, an auxiliary head, a second
pass), before or after; order alone would then pair what does not belong together.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from qtool.capture.functional import DROPOUTS
from qtool.capture.program import TRAINING_CONSTANTS
from qtool.passes.naming import module_path, node_names, op_name
from qtool.passes.ops import is_floating

if TYPE_CHECKING:
    from torch import fx

    from qtool.plan import Plan

NO_TWIN = "train mode has no such op, so training could not learn its range"
"""Why an op stays float that only eval mode has."""


class _Likeness(IntEnum):
    """How well a node of the training graph fits one of the eval graph."""

    OTHER = 0
    THROUGH_OTHERS = 1  # reads the same, with ops between that only train mode has
    SAME_INPUTS = 2
    SAME = 3  # the numbers among its arguments too


def twins(evaluated: fx.Graph, trained: fx.Graph) -> dict[str, Node]:
    """Return the training graph's node for every input and op of the eval graph that has one, by the latter's name.

    Example:
        `conv -> dropout -> relu` and `conv -> relu` have three twins: the input, `conv` and `relu`. Of
        `relu(x * 1000) ... relu(x)` in train mode the second is the twin of `relu(x)`.
    """
    candidates: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in trained.nodes:
        if node.op in ("placeholder", "call_function"):
            candidates[_site(node)].append(node)
    found: dict[Node, Node] = {}
    claimed: set[Node] = set()
    for node in evaluated.nodes:
        if node.op not in ("placeholder", "call_function"):
            continue
        free = [candidate for candidate in candidates[_site(node)] if candidate not in claimed]
        ranked = [(_likeness(node, candidate, found, claimed), candidate) for candidate in free]
        likeness, twin = max(ranked, key=lambda pair: pair[0], default=(_Likeness.OTHER, None))
        if twin is not None and likeness is not _Likeness.OTHER:
            found[node] = twin
            claimed.add(twin)
    return {node.name: twin for node, twin in found.items()}


def without_twin(plan: Plan, found: dict[str, Node]) -> dict[str, str]:
    """Return the int8 nodes of a plan that training does not meet, each with the reason why it must stay float."""
    return {node.name: NO_TWIN for node in plan.int8_nodes() if any(member not in found for member in node.members)}


def only_in_training(evaluated: fx.Graph, trained: fx.Graph) -> tuple[str, ...]:
    """Return the names of what only train mode computes, dropout left out: auxiliary heads, stochastic depth ..."""
    names = node_names(trained)
    known = set(twins(evaluated, trained).values())
    return tuple(
        names[node]
        for node in trained.nodes
        if node.op == "call_function" and node not in known and node.target not in DROPOUTS and is_floating(node)
    )


def _site(node: Node) -> tuple[str, str]:
    return ("", f"input {node.target}") if node.op == "placeholder" else (module_path(node), op_name(node))


def _likeness(node: Node, candidate: Node, found: dict[Node, Node], claimed: set[Node]) -> _Likeness:
    ours, theirs = node.all_input_nodes, candidate.all_input_nodes
    if len(ours) != len(theirs):
        return _Likeness.OTHER
    pairs = list(zip(ours, theirs, strict=True))
    if not all(_reads_same(one, other, found, claimed) for one, other in pairs):
        return _Likeness.OTHER
    if not all(_is_same(one, other, found) for one, other in pairs):
        return _Likeness.THROUGH_OTHERS
    return _Likeness.SAME if _numbers(node) == _numbers(candidate) else _Likeness.SAME_INPUTS


def _is_same(one: Node, other: Node, found: dict[Node, Node]) -> bool:
    if one.op == "get_attr":
        return other.op == "get_attr" and (one.target == other.target or _is_constant(other))
    return found.get(one) is other


def _is_constant(node: Node) -> bool:
    """Whether a tensor of the training graph is no parameter or buffer: the graphs name their own constants apart."""
    return str(node.target).startswith(f"{TRAINING_CONSTANTS}.")


def _reads_same(one: Node, other: Node, found: dict[Node, Node], claimed: set[Node]) -> bool:
    """Whether a value is another's twin, or is made from it by ops that only train mode has."""
    if one.op == "call_function" and one not in found:
        return True  # what only eval mode has cannot be compared
    left, seen = [other], set()
    while left:
        node = left.pop()
        if _is_same(one, node, found):
            return True
        if node not in seen and node not in claimed and node.op == "call_function":
            seen.add(node)
            left.extend(node.all_input_nodes)
    return False


def _numbers(node: Node) -> list[Any]:
    """Return the arguments that are no values, in order."""
    flat: list[Any] = []
    torch.fx.node.map_aggregate((node.args, node.kwargs), lambda a: flat.append(None if isinstance(a, Node) else a))
    return flat
