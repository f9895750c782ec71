"""The quantize and dequantize ops of the reference program in plain ATen, with the same bits for results.

Source: torch/ao/quantization/fx/_decomposed.py, whose functions compute the reference program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from qtool.passes import qdq_ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def quantize_per_tensor(x: Tensor, scale: float, zero_point: int, qmin: int, qmax: int, dtype: torch.dtype) -> Tensor:
    """Return clamp(round_half_even(x * (1 / scale)) + zero_point, qmin, qmax) as codes."""
    return torch.clamp(torch.round(x * (1.0 / scale)) + zero_point, qmin, qmax).to(dtype)


def dequantize_per_tensor(
    codes: Tensor,
    scale: float,
    zero_point: int,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return (codes - zero_point) * scale in float32."""
    return (codes.to(torch.float32) - zero_point) * scale


def dequantize_per_channel(
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return (codes - zero_points) * scales in float32, one of each per index of `axis`."""
    shape = [-1 if index == axis else 1 for index in range(codes.dim())]
    return (codes.to(torch.float32) - zero_points.view(shape)) * scales.view(shape)


DECOMPOSITIONS: Final[dict[Any, Callable[..., Tensor]]] = {
    qdq_ops.quantize_per_tensor: quantize_per_tensor,
    qdq_ops.dequantize_per_tensor: dequantize_per_tensor,
    qdq_ops.dequantize_per_channel: dequantize_per_channel,
}
"""By op, for `ExportedProgram.run_decompositions`."""
