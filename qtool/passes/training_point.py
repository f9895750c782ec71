"""Where the training graph puts values on a grid that come from no layer: inputs, sums, pools, activations."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, relu

from qtool.numerics.coded import Coded, values_of
from qtool.numerics.combine import combine
from qtool.numerics.grid import NO_BOUNDS, Bounds
from qtool.numerics.kernels.fake_quantize import quantize_values

if TYPE_CHECKING:
    from qtool.passes.points import ActivationPoint


class TrainingPoint(nn.Module):
    """A point of the training graph, together with the sum and the activation before it, if there are any.

    Args:
        point: observes and fake-quantizes.
        bounds: of the activation.
    """

    def __init__(self, point: ActivationPoint, bounds: Bounds) -> None:
        super().__init__()
        self.points = (point,)  # a tuple: the point belongs to the graph
        self.bounds = bounds

    def forward(self, x: Coded | Tensor, addend: Coded | Tensor | None = None) -> Coded:
        """Return `x`, with the addend added if there is one, clamped and on its grid where that is known."""
        (point,) = self.points
        values, added = values_of(x), None if addend is None else values_of(addend)
        grid = point.grid
        if grid is None:
            total = values if added is None else values + added
            return coded_at(point, clamped(total, self.bounds))
        combined = combine(values, added, bounds=self.bounds, grid=grid)
        point.observe_range(combined.low, combined.high, lambda: _ungridded(values, added, self.bounds))
        return combined.output

    def extra_repr(self) -> str:
        """Return what it does in a line."""
        return f"{self.points[0].edge}, {self.bounds}"


def coded_at(point: ActivationPoint | None, values: Tensor) -> Coded:
    """Return what a point makes of values by itself: observed, and rounded where its scale learns."""
    if point is None:
        return Coded(values)
    values = point(values)
    if not point.learns_scale:
        return Coded(values)
    grid = point.fake_quantize.grid()
    with torch.no_grad():
        codes = quantize_values(values.detach(), grid, wants_mask=False).codes
    return Coded(values, codes, None if codes is None else grid)


def clamped(x: Tensor, bounds: Bounds) -> Tensor:
    """Return `x` after the activation of these bounds, as torch computes it."""
    if bounds == NO_BOUNDS:
        return x
    return relu(x) if bounds == Bounds(0.0, inf) else hardtanh(x, *bounds)


@torch.no_grad()
def _ungridded(x: Tensor, addend: Tensor | None, bounds: Bounds) -> Tensor:
    return clamped(x if addend is None else x + addend, bounds)
