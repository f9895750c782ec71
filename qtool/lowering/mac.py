"""What a lowered convolution or linear layer is made from, whatever the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.lowering.grid import Grid
    from qtool.passes.match import ConvGeometry


@dataclass(frozen=True, kw_only=True, eq=False)
class Mac:
    """A convolution or linear layer in int8.

    Attributes:
        input: grid of the input.
        output: grid of the output.
        codes: int8 weight (O, I/groups, K) or (O, I/groups, KH, KW), or (O, I).
        scales: float32, (O,) or () for one scale.
        bias: float32 (O,) or None.
        geometry: of a convolution; None for linear.
        bounds: the smallest and the largest output code: the grid's, narrowed by a fused activation.
        has_relu: the fused activation starts at 0.
    """

    input: Grid
    output: Grid
    codes: Tensor
    scales: Tensor
    bias: Tensor | None
    geometry: ConvGeometry | None
    bounds: tuple[int, int]
    has_relu: bool

    @property
    def is_conv1d(self) -> bool:
        """A convolution over one dimension; engines get it as one over a height of 1."""
        return self.geometry is not None and self.codes.dim() == 3

    @property
    def clamps(self) -> bool:
        """Whether the bounds are narrower than what an engine's own saturation to 0..255 does."""
        return self.bounds != (0, 255)

    def scales_per_channel(self) -> Tensor:
        """Return one scale per output channel, also where there is one for all."""
        return self.scales.expand(len(self.codes)).contiguous()

    def conv2d_codes(self) -> Tensor:
        """Return the codes of a convolution with two spatial dimensions."""
        return self.codes.unsqueeze(2) if self.is_conv1d else self.codes

    def conv2d_geometry(self) -> tuple[list[int], list[int], list[int], int]:
        """Return stride, padding, dilation and groups with two spatial dimensions."""
        assert self.geometry is not None
        g = self.geometry
        lead = ([1], [0], [1]) if self.is_conv1d else ([], [], [])
        return [*lead[0], *g.stride], [*lead[1], *g.padding], [*lead[2], *g.dilation], g.groups

    def zero_points(self) -> Tensor:
        """Return the weights' zero points: weights are symmetric."""
        return torch.zeros(len(self.codes), dtype=torch.int64)
