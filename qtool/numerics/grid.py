"""What the kernels are told: the grid that values are rounded to, and the bounds of an activation before it."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor


class Grid(NamedTuple):
    """The numbers that codes stand for: `(code - zero_point) * scale` for every code in qmin..qmax.

    Attributes:
        scale: float32, > 0, `()` or `(C,)`.
        zero_point: int32, qmin..qmax, same shape.
        qmin: smallest code.
        qmax: largest code.
        axis: the channel axis, negative counts from the end; None for one scale.
    """

    scale: Tensor
    zero_point: Tensor
    qmin: int
    qmax: int
    axis: int | None = None

    @property
    def code_dtype(self) -> torch.dtype:
        """The 8-bit dtype that holds its codes."""
        return torch.uint8 if self.qmin >= 0 else torch.int8


class Limits(NamedTuple):
    """A grid without its tensors, which an autograd function saves apart."""

    qmin: int
    qmax: int
    axis: int | None


def split(grid: Grid | None) -> tuple[Tensor | None, Tensor | None, Limits | None]:
    """Return scale, zero point and the rest of a grid; `joined` makes it one again."""
    return (None, None, None) if grid is None else (grid.scale, grid.zero_point, Limits(*grid[2:]))


def joined(scale: Tensor | None, zero_point: Tensor | None, limits: Limits | None) -> Grid | None:
    """Return the grid that was split; None if there was none."""
    return None if scale is None or zero_point is None or limits is None else Grid(scale, zero_point, *limits)


class Bounds(NamedTuple):
    """The ends of a relu, relu6 or hardtanh; the gradient passes strictly between them.

    Example:
        relu is Bounds(0.0, inf), relu6 Bounds(0.0, 6.0), no activation `NO_BOUNDS`.
    """

    low: float = -inf
    high: float = inf


NO_BOUNDS = Bounds()
