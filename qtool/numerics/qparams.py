"""Scale and zero point of a range: the one place where they are computed.

Shapes: lo, hi, amax and both results have one shape: `()` for one scale per tensor, `(C,)` for one per channel.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qtool.errors import RangeError

if TYPE_CHECKING:
    from qtool.types import Spec

SCALE_FLOOR = 2.0**-63
"""The smallest scale, about 1.08e-19; exact in float32.

Engines multiply the scales of input and weight, and divide by the product. A product of two scales that are at
least 2^-63 is at least 2^-126, the smallest normal float32, so neither it nor its reciprocal (at most 2^126) is
zero, denormal or infinite. Source: IEEE 754 binary32; the divisions are in FBGEMM `QuantUtilsAvx2.cc`
(`act_times_w_scale`) and in ATen `qconv.cpp` (bias scale).
"""

SCALE_CEILING = 2.0**126
"""The largest scale, about 8.5e37: its reciprocal is the smallest normal float32. Only ranges of very few steps
over nearly all of float32 reach it."""

BIAS_LIMIT = 2**30
"""Largest code of an int32 bias.

Half of int32: qnnpack adds the products on top of the bias in the same int32, and that sum must not wrap. What is left
has room for 2^30 / (255 * 127), some 33 000 products of codes. Measured: with 2^31 - 1 the dead channels of
EfficientNet-Lite0 came out 250 steps off on qnnpack.
"""


class QParams(NamedTuple):
    """How real numbers map to codes: `code = round(x / scale) + zero_point`.

    Attributes:
        scale: float32, SCALE_FLOOR..SCALE_CEILING, `()` or `(C,)`.
        zero_point: int32, qmin..qmax, same shape.
    """

    scale: Tensor
    zero_point: Tensor


def affine_qparams(lo: Tensor | float, hi: Tensor | float, qmin: int, qmax: int) -> QParams:
    """Return the scale and zero point that spread qmin..qmax over the range lo..hi.

    The range is first widened to hold 0, so 0.0 maps exactly to the zero point. The scale is computed in float64
    and rounded once to float32; the zero point is `qmin - lo / scale`, rounded half to even and clamped.

    Args:
        lo: lower end, finite, any float dtype, `()` or `(C,)`.
        hi: upper end, finite, at least `lo`, same shape.
        qmin: smallest code.
        qmax: largest code, above `qmin`.

    Returns:
        QParams of the shape of `lo`.

    Raises:
        RangeError: an end is NaN or infinite, lo > hi, or qmin >= qmax.

    Source: Jacob et al. 2018, arXiv:1712.05877, section 3 (zero must be exact).

    Example:
        >>> affine_qparams(-0.5, 2.05, 0, 255)
        QParams(scale=tensor(0.0100), zero_point=tensor(50, dtype=torch.int32))
        >>> affine_qparams(5.0, 5.0, 0, 255)  # widened to 0..5: 5.0 is code 255
        QParams(scale=tensor(0.0196), zero_point=tensor(0, dtype=torch.int32))
    """
    lo, hi = _as_float64(lo), _as_float64(hi)
    _check_range(lo, hi, qmin, qmax)
    lo, hi = lo.clamp(max=0.0), hi.clamp(min=0.0)
    scale = _settle_scale((hi - lo) / (qmax - qmin))
    zero_point = (qmin - torch.round(lo / scale.double())).clamp(qmin, qmax)
    return QParams(scale, zero_point.to(torch.int32))


def symmetric_qparams(amax: Tensor | float, qmin: int, qmax: int) -> QParams:
    """Return the scale that maps -amax..amax onto the codes around a fixed zero point.

    The zero point is the middle of qmin..qmax (the upper one of two): 0 for -127..127 and for -128..127, 128 for
    0..255. The scale is `amax / steps` with the steps of the shorter side, so that neither end is clamped: 127 in
    all three.

    Args:
        amax: largest magnitude, finite and not negative, any float dtype, `()` or `(C,)`.
        qmin: smallest code.
        qmax: largest code, above `qmin`.

    Returns:
        QParams of the shape of `amax`.

    Raises:
        RangeError: amax is negative, NaN or infinite, or qmin >= qmax.

    Example:
        >>> symmetric_qparams(2.54, -127, 127)
        QParams(scale=tensor(0.0200), zero_point=tensor(0, dtype=torch.int32))
    """
    amax = _as_float64(amax)
    _check_range(torch.zeros_like(amax), amax, qmin, qmax)
    return _symmetric(amax, qmin, qmax)


def _symmetric(amax: Tensor, qmin: int, qmax: int) -> QParams:
    """Return what `symmetric_qparams` does, of a range that was checked."""
    zero_point = symmetric_zero_point(qmin, qmax)
    steps = min(zero_point - qmin, qmax - zero_point)
    scale = _settle_scale(amax / max(steps, 1))
    return QParams(scale, torch.full_like(scale, zero_point, dtype=torch.int32))


def qparams_for(lo: Tensor | float, hi: Tensor | float, spec: Spec) -> QParams:
    """Return the scale and zero point that cover lo..hi with the codes of `spec`.

    Args:
        lo: lower end, finite, any float dtype, `()` or `(C,)`.
        hi: upper end, finite, at least `lo`, same shape.
        spec: its qmin, qmax and symmetric are used; where it has fixed parameters, they are the result.

    Raises:
        RangeError: an end is NaN or infinite, or lo > hi.

    Example:
        >>> qparams_for(-2.54, 1.0, Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, symmetric=True))
        QParams(scale=tensor(0.0200), zero_point=tensor(0, dtype=torch.int32))
    """
    if spec.fixed is not None:
        zero_point = torch.tensor(spec.fixed.zero_point, dtype=torch.int32)
        return QParams(torch.tensor(spec.fixed.scale, dtype=torch.float32), zero_point)
    if not spec.symmetric:
        return affine_qparams(lo, hi, spec.qmin, spec.qmax)
    lo, hi = _as_float64(lo), _as_float64(hi)
    _check_range(lo, hi, spec.qmin, spec.qmax)
    return _symmetric(torch.maximum(lo.abs(), hi.abs()), spec.qmin, spec.qmax)


def symmetric_zero_point(qmin: int, qmax: int) -> int:
    """Return the code in the middle of qmin..qmax, the upper one where there are two.

    Example:
        >>> symmetric_zero_point(-127, 127), symmetric_zero_point(-128, 127), symmetric_zero_point(0, 255)
        (0, 0, 128)
    """
    return (qmin + qmax + 1) // 2


def bias_scale_floor(bias: Tensor, input_scale: Tensor | float) -> Tensor:
    """Return, per channel, the smallest weight scale with which the bias fits into an int32.

    A kernel adds the bias as `round(bias / (input_scale * weight_scale))`. A weight scale at or above the result
    keeps that inside +-2^30. Raising a weight scale to it costs nothing that can be seen: weights so small
    beside the bias change no output code.

    Args:
        bias: finite, any float dtype, `(C,)`.
        input_scale: the scale of the input activation, `()` or a number, > 0.

    Returns:
        float32 `(C,)`, at least SCALE_FLOOR.

    Example:
        >>> bias_scale_floor(torch.tensor([5.0, 0.0]), 0.5)
        tensor([9.3132e-09, 1.0842e-19])
    """
    needed = bias.double().abs() / (_as_float64(input_scale).to(bias.device) * BIAS_LIMIT)
    floor = needed.clamp(min=SCALE_FLOOR).float()
    # One float32 step up: the product of the rounded scales must not fall below the exact one.
    above = torch.nextafter(floor, torch.full_like(floor, torch.inf))
    return torch.where(needed > SCALE_FLOOR, above, floor)


def _as_float64(value: Tensor | float) -> Tensor:
    return torch.as_tensor(value).to(torch.float64)


def _settle_scale(exact: Tensor) -> Tensor:
    return exact.clamp(SCALE_FLOOR, SCALE_CEILING).to(torch.float32)


def _check_range(lo: Tensor, hi: Tensor, qmin: int, qmax: int) -> None:
    if qmin >= qmax:
        msg = f"code range {qmin}..{qmax} is empty: qmin must be below qmax"
        raise RangeError(msg)
    # NaN fails every comparison, so it is caught too; comparisons cost a fraction of `isfinite`.
    good = (lo <= hi) & (lo > -inf) & (hi < inf)
    if not bool(good.all()):
        first = int((~good).flatten().nonzero()[0])
        msg = (
            f"range {lo.flatten()[first].item()}..{hi.flatten()[first].item()} at channel {first} cannot be quantized: "
            "both ends must be finite and in order; check the data for NaN and infinity"
        )
        raise RangeError(msg)
