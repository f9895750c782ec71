"""What a lowered convolution or linear layer is made from, whatever the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        codes: int8 weight (O, I/groups, *kernel), of a transposed convolution (I, O/groups, *kernel), or (O, I).
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
    def num_dims(self) -> int:
        """Number of spatial dimensions; 0 of a linear layer."""
        return self.codes.dim() - 2

    @property
    def clamps(self) -> bool:
        """Whether the bounds are narrower than what an engine's own saturation to 0..255 does."""
        return self.bounds != (0, 255)

    def scales_per_channel(self) -> Tensor:
        """Return one scale per output channel, also where there is one for all."""
        return self.scales.expand(len(self.codes)).contiguous()

    def image_codes(self) -> Tensor:
        """Return the codes of a convolution with at least two spatial dimensions: engines get one as a height of 1."""
        return self.codes.unsqueeze(2) if self.num_dims == 1 else self.codes

    def image_geometry(self) -> ConvGeometry:
        """Return the geometry that goes with `image_codes`."""
        assert self.geometry is not None
        g = self.geometry
        if self.num_dims > 1:
            return g
        output_padding = None if g.output_padding is None else (0, *g.output_padding)
        return replace(
            g,
            stride=(1, *g.stride),
            padding=(0, *g.padding),
            dilation=(1, *g.dilation),
            output_padding=output_padding,
        )

    def smallest_input(self) -> tuple[int, ...]:
        """Return the shape of a small input that every kernel takes: one row, or the window and its padding."""
        if self.geometry is None:
            return (1, self.codes.shape[1])
        g = self.geometry
        num_channels = self.codes.shape[0] if g.is_transposed else self.codes.shape[1] * g.groups
        windows = zip(self.codes.shape[2:], g.dilation, g.padding, strict=True)
        return (1, num_channels, *((size - 1) * dilation + 1 + 2 * padding for size, dilation, padding in windows))

    def packing(self, engine: str) -> tuple[object, ...]:
        """Return what decides the packed weight: two layers of which it is equal may share one.

        The scale of the input counts but for fbgemm: qnnpack packs again where it changes, oneDNN takes it at packing.
        """
        scales = self.scales.data_ptr() if self.scales.dim() else float(self.scales)
        bias = None if self.bias is None else self.bias.data_ptr()
        x = None if engine == "fbgemm" else (self.input.scale, self.input.zero_point)
        return (engine, self.codes.data_ptr(), tuple(self.codes.shape), scales, bias, self.geometry, x)

    def zero_points(self) -> Tensor:
        """Return the weights' zero points: weights are symmetric."""
        return torch.zeros(len(self.codes), dtype=torch.int64)
