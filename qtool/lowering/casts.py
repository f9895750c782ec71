"""The seams of a lowered graph: float to codes, codes to float, and plain codes to torch's quantized tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from qtool.lowering.quint8 import to_quint8

if TYPE_CHECKING:
    from qtool.lowering.grid import Grid


class Quantize(nn.Module):
    """From float to codes, where float meets int8."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        """Return the codes of `x`, bit-equal to the reference op."""
        return self.grid.quantize(x)


class Dequantize(nn.Module):
    """From codes to float, where int8 meets float."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, codes: Tensor) -> Tensor:
        """Return the values of `codes`, bit-equal to the reference op."""
        return self.grid.dequantize(codes)


class ToQuint8(nn.Module):
    """From plain codes to torch's quantized tensor, which the packed engines take."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, codes: Tensor) -> Tensor:
        """Return the same codes as quint8."""
        return to_quint8(codes, self.grid.scale, self.grid.zero_point)


class ToCodes(nn.Module):
    """From torch's quantized tensor to plain codes, clamped if need be.

    torch's own clamp of quantized tensors asks the global engine who does it, and qnnpack's is wrong on channels_last.

    Attributes:
        bounds: the smallest and the largest code to leave; None clamps nothing.
    """

    def __init__(self, bounds: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.bounds = bounds

    def forward(self, quantized: Tensor) -> Tensor:
        """Return the codes as uint8."""
        codes = quantized.int_repr()
        return codes if self.bounds is None else codes.clamp_(*self.bounds)
