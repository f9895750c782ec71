"""Values that a grid keeps next to nothing of: far from zero beside their own spread, too small, or all zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qtool.numerics.qparams import SCALE_FLOOR, qparams_for
from qtool.numerics.quantize import quantize
from qtool.passes.settle import edges_by_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.plan import Plan
    from qtool.types import Spec

MIN_CODES = 4
"""Chosen: with fewer codes than this the values of an edge are next to constant."""

FLOAT = "or leave what reads it in float: quantize.overrides with dtype: float"

Range = tuple[float, float]


def narrow_warnings(plan: Plan, seen: Mapping[str, Range]) -> tuple[str, ...]:
    """Return a warning for each scale that all values seen lie on fewer than `MIN_CODES` codes of.

    Every range holds zero, so values that are far from it beside their spread share few codes. Edges that share a scale
    are one case; scales that follow from an op are none.

    Args:
        plan: the plan.
        seen: smallest and largest value of each edge that was observed, by edge name.

    Example:
        The edge `x` with values 1000 to 1001, in codes 0..255: "'x' saw values from 1000 to 1001 alone, which lie on 2
        of 256 codes, since every range holds zero. ..."
    """
    found = []
    for members in edges_by_group(plan).values():
        ends = [seen[edge.name] for edge in members if edge.name in seen]
        if ends and members[0].spec.fixed is None:
            low, high = min(end[0] for end in ends), max(end[1] for end in ends)
            found.append(_warning(members[0].name, members[0].spec, low, high))
    return tuple(warning for warning in found if warning)


def _warning(name: str, spec: Spec, low: float, high: float) -> str:
    if low == high == 0:
        return (
            f"{name!r} saw nothing but zeros: its scale is the smallest there is, {SCALE_FLOOR:.3g}, and all values "
            f"will be clamped next to zero. Calibrate on data that reaches it, {FLOAT}"
        )
    scale, zero_point = qparams_for(low, high, spec)
    if float(scale) <= SCALE_FLOOR:
        return (
            f"{name!r} saw values from {low:.3g} to {high:.3g} alone, too small for the smallest scale there is, "
            f"{SCALE_FLOOR:.3g}. Look at the data and the weights before it, {FLOAT}"
        )
    ends = quantize(torch.tensor([low, high]), scale, zero_point, spec.qmin, spec.qmax, dtype=torch.int32)
    num_codes, num_all = int(ends[1] - ends[0]) + 1, spec.num_steps + 1
    if num_codes >= MIN_CODES:
        return ""
    return (
        f"{name!r} saw values from {low:.6g} to {high:.6g} alone, which lie on {num_codes} of {num_all} codes, "
        f"since every range holds zero. Subtract their mean before, {FLOAT}"
    )
