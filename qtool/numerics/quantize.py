"""Real numbers to codes and back: the one definition of rounding and clamping, as pure functions.

    code  = clamp(round_half_even(x * inv_scale) + zero_point, qmin, qmax),  inv_scale = float32(1 / scale)
    value = (code - zero_point) * scale

The first product is taken in float32 (float64 for float64 input), the second always in float32, as the reference
program's ops and the engines do; docs/decisions/001-reciprocal-rounding.md says why it is no division.

Shapes: x any; scale and zero_point `()` without axis, `(x.shape[axis],)` with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qtool.errors import DtypeError, RangeError


def quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, *, axis: int | None = None, dtype: torch.dtype
) -> Tensor:
    """Return the codes of `x`.

    NaN gets the code of 0.0, the zero point: a code cannot say NaN, and the casts of the platforms disagree (0
    here, the largest code there). Infinities get the nearer end of the range.

    Args:
        x: float16, bfloat16, float32 or float64; any shape, layout and size, also empty.
        scale: float32, > 0.
        zero_point: int32, qmin..qmax.
        qmin: smallest code.
        qmax: largest code.
        axis: the channel axis, negative counts from the end; None for one scale.
        dtype: integer dtype of the codes; must hold qmin..qmax.

    Returns:
        Codes of dtype `dtype`, shape and memory format of `x`.

    Raises:
        DtypeError: x is not floating.
        RangeError: scale has not one entry per channel, or dtype does not hold qmin..qmax.

    Example:
        >>> x = torch.tensor([-1.0, 0.0, 0.5, 1.5, 9.0])
        >>> quantize(x, torch.tensor(1.0), torch.tensor(2, dtype=torch.int32), 0, 7, dtype=torch.uint8)
        tensor([1, 2, 2, 4, 7], dtype=torch.uint8)
    """
    limits = torch.iinfo(dtype)
    if qmin < limits.min or qmax > limits.max:
        msg = f"codes {qmin}..{qmax} do not fit {dtype}: it holds {limits.min}..{limits.max}"
        raise RangeError(msg)
    steps = scaled_and_rounded(x, scale, axis).nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    return steps.add_(along_axis(zero_point, x, axis)).clamp_(qmin, qmax).to(dtype)


def dequantize(codes: Tensor, scale: Tensor, zero_point: Tensor, *, axis: int | None = None) -> Tensor:
    """Return the real numbers that codes stand for.

    Args:
        codes: any integer dtype up to 24 bits of value; any shape and layout.
        scale: float32.
        zero_point: int32.
        axis: the channel axis, negative counts from the end; None for one scale.

    Returns:
        float32, shape and memory format of `codes`.

    Raises:
        RangeError: scale has not one entry per channel.

    Example:
        >>> codes = torch.tensor([1, 2, 7], dtype=torch.uint8)
        >>> dequantize(codes, torch.tensor(0.5), torch.tensor(2, dtype=torch.int32))
        tensor([-0.5000,  0.0000,  2.5000])
    """
    # To float first: uint8 minus a zero point would wrap.
    values = codes.to(torch.float32, copy=True)
    return values.sub_(along_axis(zero_point, codes, axis)).mul_(along_axis(scale, codes, axis))


def scaled_and_rounded(x: Tensor, scale: Tensor, axis: int | None) -> Tensor:
    """Return `round_half_even(x * (1 / scale))` as a new float32 tensor, float64 for float64 input.

    NaN stays NaN and infinity stays infinity; the memory format is that of `x`.
    """
    # The float32 division is correctly rounded: the same bits as rounding the float64 reciprocal.
    return widened(x).mul(along_axis(scale.reciprocal(), x, axis)).round_()


def widened(x: Tensor) -> Tensor:
    """Return `x` in the dtype that it is computed in: float64 as it is, all else in float32.

    float16 and bfloat16 would round a product to their own few bits.

    Raises:
        DtypeError: x is not floating.
    """
    if not x.is_floating_point():
        msg = f"cannot quantize a tensor of {x.dtype}: only float16, bfloat16, float32 and float64 have a scale"
        raise DtypeError(msg)
    return x if x.dtype == torch.float64 else x.float()


def along_axis(per_channel: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """Return a view of `per_channel` that broadcasts over `x` along `axis`.

    Raises:
        RangeError: the axis does not exist, or its size is not the number of channels.
    """
    if axis is None:
        return per_channel
    if not -x.dim() <= axis < x.dim():
        msg = f"axis {axis} does not exist in a tensor of shape {tuple(x.shape)}"
        raise RangeError(msg)
    if per_channel.numel() != x.shape[axis]:
        msg = (
            f"{per_channel.numel()} scales for {x.shape[axis]} channels: "
            f"axis {axis} of shape {tuple(x.shape)} needs one scale per index"
        )
        raise RangeError(msg)
    shape = [1] * x.dim()
    shape[axis] = -1
    return per_channel.view(shape)
