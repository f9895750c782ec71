"""The steps that the kernels are made of, by ATen ops: activation, rounding to the grid, where the gradient passes.

Everything here works on `y` in float32, or in float64 for a tensor of float64.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.quantize import along_axis, scaled_and_rounded

if TYPE_CHECKING:
    from qtool.numerics.grid import Bounds, Grid


def activated(y: Tensor, bounds: Bounds) -> Tensor:
    """Return `y` clamped to the bounds of its activation; NaN stays NaN."""
    return y.clamp(*bounds) if is_bounded(bounds) else y


def is_bounded(bounds: Bounds) -> bool:
    """Return whether there is an activation at all."""
    return bounds.low != -inf or bounds.high != inf


def on_grid(y: Tensor, grid: Grid, dtype: torch.dtype, *, wants_codes: bool) -> tuple[Tensor, Tensor | None]:
    """Return `y` rounded to the grid in `dtype`, and its codes.

    NaN stays NaN. A code cannot say NaN: there are no codes then. A traced graph cannot ask, and has the zero point
    as the code of NaN.
    """
    steps = scaled_and_rounded(y, grid.scale, grid.axis).add_(along_axis(grid.zero_point, y, grid.axis))
    steps = steps.clamp_(grid.qmin, grid.qmax)
    codes = _as_codes(steps, grid) if wants_codes else None
    # A code stands for one float32 number, whatever the dtype of the tensor that it was made from.
    offsets = steps.float().sub_(along_axis(grid.zero_point, y, grid.axis))
    return offsets.mul_(along_axis(grid.scale, y, grid.axis)).to(dtype), codes


def _as_codes(steps: Tensor, grid: Grid) -> Tensor | None:
    is_nan = steps.isnan()
    if torch.compiler.is_compiling():
        return torch.where(is_nan, along_axis(grid.zero_point, steps, grid.axis), steps).to(grid.code_dtype)
    return None if bool(is_nan.any()) else steps.to(grid.code_dtype)


def passes(y: Tensor, grid: Grid | None, bounds: Bounds) -> Tensor:
    """Return, as bool, where the gradient of clamping and rounding `y` is 1: nothing was clamped, and y is no NaN.

    `y` may have been clamped to the bounds or not: at a bound the gradient is 0 either way.
    """
    inside = y == y  # noqa: PLR0124 - false for NaN
    if bounds.low != -inf:
        inside &= y > bounds.low
    if bounds.high != inf:
        inside &= y < bounds.high
    if grid is not None:
        steps = scaled_and_rounded(y, grid.scale, grid.axis).add_(along_axis(grid.zero_point, y, grid.axis))
        inside &= (steps >= grid.qmin) & (steps <= grid.qmax)
    return inside


def value_range(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest of `y` as float32 `()`: NaN if there is any, inf and -inf of nothing."""
    if not y.numel():
        nothing = torch.tensor(inf, device=y.device)
        return nothing, -nothing
    low, high = torch.aminmax(y)
    return low.float(), high.float()
