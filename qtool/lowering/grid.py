"""The grid of one quantized tensor, as the reference program's quantize and dequantize ops state it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.kernels.native_codes import Operand, Result
from qtool.numerics.quantize import dequantize, quantize

if TYPE_CHECKING:
    from torch.fx import Node


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Scale, zero point and codes of a tensor with one scale.

    Attributes:
        scale: float32 value as a Python float, > 0.
        zero_point: code of 0.0.
        qmin: smallest code.
        qmax: largest code.
        dtype: dtype of the codes.
    """

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: torch.dtype

    @staticmethod
    def of(node: Node) -> Grid:
        """Return the grid of a quantize_per_tensor or dequantize_per_tensor node."""
        _, scale, zero_point, qmin, qmax, dtype = node.args
        return Grid(scale=scale, zero_point=zero_point, qmin=qmin, qmax=qmax, dtype=dtype)  # type: ignore[arg-type]

    def quantize(self, x: Tensor) -> Tensor:
        """Return the codes of float values, bit-equal to the reference op."""
        scale, zero_point = self._tensors()
        return quantize(x, scale, zero_point, self.qmin, self.qmax, dtype=self.dtype)

    def dequantize(self, codes: Tensor) -> Tensor:
        """Return the float values of codes, bit-equal to the reference op."""
        return dequantize(codes, *self._tensors())

    def code_bounds(self, low: float | None, high: float | None) -> tuple[int, int]:
        """Return the codes that clamping to low..high leaves: rounding is monotone, so clamping codes is the same.

        Example:
            With scale 0.1, zero point 10, codes 0..127: relu6 (0.0, 6.0) leaves 10..70, no bounds leave 0..127.
        """
        ends = [self.qmin if low is None else low, self.qmax if high is None else high]
        codes = [
            end if bound is None else int(self.quantize(torch.tensor(float(bound))))
            for end, bound in zip(ends, (low, high), strict=True)
        ]
        return int(codes[0]), int(codes[1])

    def as_operand(self) -> Operand:
        """Return the grid of codes that are read, as C knows it."""
        return Operand(self.scale, self.zero_point)

    def as_result(self, bounds: tuple[int, int] | None = None) -> Result:
        """Return the grid of codes that are written, as C knows it: all of them, or those between the bounds."""
        scale, _ = self._tensors()
        return Result(float(scale.reciprocal()), self.zero_point, *(bounds or (self.qmin, self.qmax)))

    def value(self, code: int) -> float:
        """Return the value of one code, in float64."""
        return (code - self.zero_point) * self.scale

    def _tensors(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.scale, dtype=torch.float32), torch.tensor(self.zero_point, dtype=torch.int32)
