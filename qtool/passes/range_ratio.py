"""Values of very different size in one cat: they share one scale, and the small one is left with few of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.plan import NodePlan, Plan

MAX_RATIO = 64
"""Wider ranges than this beside the narrowest of a cat are reported: of 255 steps it then has 3 left."""

Range = tuple[float, float]


def ratio_warnings(plan: Plan, seen: Mapping[str, Range]) -> tuple[str, ...]:
    """Return a warning for each int8 cat whose inputs have ranges that differ by more than `MAX_RATIO`.

    A range counts from its lower to its upper end, zero included. An input of nothing but zeros loses nothing.

    Args:
        plan: the plan.
        seen: smallest and largest value of each edge that was observed, by edge name.

    Example:
        Inputs `a`, -3 to 5, and `b`, -0.01 to 0.01: "'cat' gives 'a' (-3 to 5) and 'b' (-0.01 to 0.01) one scale: the
        range of 'a' is 400 times that of 'b', which keeps 0 of 255 steps. ..."
    """
    found = (_warning(plan, node, seen) for node in plan.int8_nodes() if node.op is Op.CAT)
    return tuple(warning for warning in found if warning)


def _warning(plan: Plan, node: NodePlan, seen: Mapping[str, Range]) -> str:
    widths = {name: _width(seen[name]) for name in node.inputs if name in seen}
    widths = {name: width for name, width in widths.items() if width > 0}
    if not widths:
        return ""
    wide, narrow = max(widths, key=widths.__getitem__), min(widths, key=widths.__getitem__)
    ratio = widths[wide] / widths[narrow]
    if ratio <= MAX_RATIO:
        return ""
    num_steps = plan.edge(wide).spec.num_steps
    return (
        f"{node.name!r} gives {_shown(wide, seen)} and {_shown(narrow, seen)} one scale: the range of {wide!r} is "
        f"{ratio:.3g} times that of {narrow!r}, which keeps {int(num_steps / ratio)} of {num_steps} steps. To keep "
        f"both, leave it in float: quantize.overrides: [{{match: {node.name!r}, dtype: float}}]"
    )


def _width(ends: Range) -> float:
    low, high = ends
    return max(high, 0.0) - min(low, 0.0)


def _shown(name: str, seen: Mapping[str, Range]) -> str:
    low, high = seen[name]
    return f"{name!r} ({low:.3g} to {high:.3g})"
