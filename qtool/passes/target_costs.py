"""What a plan for several backends gives up, and which of them ask for it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from qtool.plan import TargetCost
from qtool.types import Granularity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.plan import NodePlan, Plan

FLOAT = "float instead of int8"
REDUCED = "7 bits instead of 8 for the input"
ONE_SCALE = "one scale instead of one per channel for the weight"


def target_costs(plan: Plan, alone: Mapping[str, Plan]) -> tuple[TargetCost, ...]:
    """Return each loss that at least one backend would not ask for, with the nodes and the backends that do.

    Args:
        plan: the plan for all backends together.
        alone: for each of them, the plan for it alone; all are of one graph.

    Example:
        For fbgemm and qnnpack on any CPU, a convolution gives `TargetCost(what="7 bits instead of 8 for the input",
        nodes=("0",), backends=("fbgemm",))`: qnnpack alone would keep 8 bits.
    """
    by_name = {name: {node.name: node for node in each.nodes} for name, each in alone.items()}
    found: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for node in plan.nodes:
        for what in _losses(node):
            askers = tuple(name for name, nodes in by_name.items() if what in _losses(nodes[node.name]))
            if len(askers) < len(alone):
                # Nobody alone: what lies between nodes that different backends keep float.
                found[what, askers or tuple(alone)].append(node.name)
    return tuple(TargetCost(what=what, nodes=tuple(nodes), backends=who) for (what, who), nodes in found.items())


def _losses(node: NodePlan) -> Iterator[str]:
    if node.verdict is Verdict.FLOAT:
        yield FLOAT
        return
    if node.reduce_range:
        yield REDUCED
    if node.weight is not None and node.weight.granularity is Granularity.TENSOR:
        yield ONE_SCALE
