"""Mean, variance and range of each channel in one read: all that batch norm and an observer behind it need."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qtool.numerics.grid import NO_BOUNDS
from qtool.numerics.kernels import native
from qtool.numerics.kernels.channels import dense, planes_or_rows
from qtool.numerics.kernels.ordered_sum import channel_sums


class ChannelStatistics(NamedTuple):
    """Statistics of each channel.

    Attributes:
        mean: float64 `(C,)`.
        variance: float64 `(C,)`, of the batch itself (divided by the count), at least 0.
        low: smallest value, float32 `(C,)`, exact; NaN where there is a NaN, infinity where there is nothing.
        high: largest value, likewise.
    """

    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor


def channel_statistics(x: Tensor) -> ChannelStatistics:
    """Return mean, variance and range of each channel of `x`.

    The variance is the mean of squares less the square of the mean, in float64. Squares of float32 are exact there,
    so its relative error is about 1e-15 * (1 + mean^2 / variance); NaN for float64 input whose squares overflow.

    Args:
        x: any float dtype, `(N, C, ...)`, any layout.

    Example:
        >>> channel_statistics(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).variance
        tensor([1., 0.], dtype=torch.float64)
    """
    x = dense(x)
    total, squares, low, high = _native_sums(x) if x.dtype == torch.float32 and native.takes(x) else _aten_sums(x)
    count = x.numel() // max(x.shape[1], 1)
    mean = total / count
    return ChannelStatistics(mean, (squares / count - mean * mean).clamp(min=0.0), low, high)


def _native_sums(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    low, high = torch.empty(2, x.shape[1]).unbind()
    total, squares = native.channel_sums(native.channels_of(x), NO_BOUNDS, None, low, high)
    return total, squares, low, high


def _aten_sums(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lies = planes_or_rows(x)
    wide = lies.double()
    dims = (0, 2)[: lies.dim() - 1]
    if not x.numel():
        nothing = torch.full((x.shape[1],), torch.inf, device=x.device)
        return channel_sums(wide), channel_sums(wide), nothing, -nothing
    return channel_sums(wide), channel_sums(wide * wide), lies.amin(dims).float(), lies.amax(dims).float()
