"""Twins: which node of the training graph is which node of the eval graph, by module, op and order of calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from qtool.capture.functional import DROPOUTS
from qtool.passes.naming import call_of, node_names, op_name
from qtool.passes.ops import value

if TYPE_CHECKING:
    from torch import fx
    from torch.fx import Node

    from qtool.plan import Plan

NO_TWIN = "train mode has no such op, so training could not learn its range"
"""Why an op stays float that only eval mode has."""


def twins(evaluated: fx.Graph, trained: fx.Graph) -> dict[str, Node]:
    """Return the training graph's node for every input and op of the eval graph that has one, by the latter's name.

    Example:
        `conv -> dropout -> relu` and `conv -> relu` have three twins: the input, `conv` and `relu`.
    """
    sites = _call_sites(trained)
    found = {}
    for site, node in _call_sites(evaluated).items():
        twin = sites.get(site)
        if twin is not None:
            found[node.name] = twin
    return found


def without_twin(plan: Plan, found: dict[str, Node]) -> dict[str, str]:
    """Return the int8 nodes of a plan that training does not meet, each with the reason why it must stay float."""
    return {node.name: NO_TWIN for node in plan.int8_nodes() if any(member not in found for member in node.members)}


def only_in_training(evaluated: fx.Graph, trained: fx.Graph) -> tuple[str, ...]:
    """Return the names of what only train mode computes, dropout left out: auxiliary heads, stochastic depth ..."""
    names = node_names(trained)
    known = {twin for twin in twins(evaluated, trained).values()}
    return tuple(
        names[node]
        for node in trained.nodes
        if node.op == "call_function" and node not in known and node.target not in DROPOUTS and _is_float_op(node)
    )


def _is_float_op(node: Node) -> bool:
    found = value(node)
    return isinstance(found, torch.Tensor) and found.is_floating_point()


def _call_sites(graph: fx.Graph) -> dict[tuple[str, str, int], Node]:
    """Return every input and op by the call of a module it belongs to, its op, and its number among those."""
    seen: Counter[tuple[str, str]] = Counter()
    sites = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "call_function"):
            continue
        key = ("", f"input {node.target}") if node.op == "placeholder" else (call_of(node), op_name(node))
        sites[(*key, seen[key])] = node
        seen[key] += 1
    return sites
