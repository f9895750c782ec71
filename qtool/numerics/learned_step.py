"""Fake-quantize with a scale that learns: the gradient rule of learned step size quantization.

    v      = x * float32(1 / scale)
    y      = (clamp(round_half_even(v) + zero_point, qmin, qmax) - zero_point) * scale
    dx     = dy where clamping changed nothing, else 0
    dscale = g * sum(dy * e)
    e      = round_half_even(v) - v inside the range, qmin - zero_point below it, qmax - zero_point above it
    g      = 1 / sqrt(N * steps)

y is that of `fake_quantize`, bit for bit. N is the number of elements that share the scale, steps the number of codes
on the longer side of zero: qmax for the paper's unsigned activations, 127 for weights in -127..127. The zero point is
fixed.

Backward needs e. A leaf that learns (a parameter) is kept as it is, which costs nothing, and e is computed again:
exact. Of anything else one byte an element is kept, which says the mask too: e in steps of 1/252, so off by at most
1/504 inside the range and exact where a value was clamped; the gradient of x is exact always.

Source: Esser et al. 2020, arXiv:1902.08153, equation 3 and section 2.2.

Shapes: x any; scale and zero_point `()` without axis, `(x.shape[axis],)` with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.first_order import first_order_only
from qtool.numerics.kernels.ordered_sum import channel_sums
from qtool.numerics.quantize import along_axis

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        qmin: int
        qmax: int
        axis: int | None
        num_elements: int
        exact: bool


RESIDUAL_STEPS = 252
"""Bytes for one step of the scale: -126..126 are e from -1/2 to 1/2. What is left says which end, or NaN."""
BELOW, ABOVE, NOT_A_NUMBER = -127, 127, -128


def fake_quantize_learned(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    *,
    axis: int | None = None,
    num_elements: int | None = None,
) -> Tensor:
    """Return `x` rounded to the grid of its codes, differentiable with respect to `x` and `scale`.

    Args:
        x: float16, bfloat16, float32 or float64; any shape, layout and size, also empty.
        scale: float32, > 0.
        zero_point: int32, qmin..qmax.
        qmin: smallest code.
        qmax: largest code.
        axis: the channel axis, negative counts from the end; None for one scale.
        num_elements: N; None for all elements of `x`, or of a channel, that share a scale. (The paper leaves the batch
            out of the count for activations.)

    Returns:
        What `fake_quantize` returns, bit for bit. NaN has no part in the gradient of the scale, infinity that of a
        clamped value.

    Raises:
        DtypeError: x is not floating.
        RangeError: scale has not one entry per channel.

    Example:
        >>> x = torch.tensor([-9.0, 0.3, 0.9, 9.0], requires_grad=True)
        >>> scale = torch.tensor(0.5, requires_grad=True)
        >>> y = fake_quantize_learned(x, scale, torch.tensor(0, dtype=torch.int32), -4, 4)
        >>> y.detach()
        tensor([-2.0000,  0.5000,  1.0000,  2.0000])
        >>> y.backward(torch.tensor([1.0, 1.0, 1.0, 2.0]))
        >>> x.grad
        tensor([0., 1., 1., 0.])
        >>> scale.grad  # (-4 + 0.4 + 0.2 + 2 * 4) / sqrt(4 * 4)
        tensor(1.1500)
    """
    if not (torch.is_grad_enabled() and scale.requires_grad):
        return fake_quantize(x, scale, zero_point, qmin, qmax, axis=axis)
    if num_elements is None:
        num_elements = x.numel() // scale.numel()
    y, _ = _FakeQuantizeLearned.apply(
        x, scale, zero_point, qmin, qmax, axis, num_elements, x.is_leaf and x.requires_grad
    )
    return y


def scale_gradient_factor(zero_point: Tensor, qmin: int, qmax: int, num_elements: int) -> Tensor:
    """Return g, float32, of the shape of `zero_point`.

    Example:
        >>> scale_gradient_factor(torch.tensor(0, dtype=torch.int32), -127, 127, 127)
        tensor(0.0079)
    """
    steps = torch.maximum(qmax - zero_point, zero_point - qmin)
    return (steps.double() * max(num_elements, 1)).rsqrt().float()


def _parts(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return e inside the range, and where x lies below and above it; a NaN is inside, and its e is NaN."""
    wide = x if x.dtype == torch.float64 else x.float()
    v = wide * along_axis(scale.reciprocal(), x, axis)
    rounded = v.round()
    codes = rounded + along_axis(zero_point, x, axis)
    return rounded.sub_(v), codes < qmin, codes > qmax


class _FakeQuantizeLearned(torch.autograd.Function):
    """`fake_quantize_learned` with its gradients; saves a byte an element, or a leaf as it is."""

    @staticmethod
    def forward(
        x: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        qmin: int,
        qmax: int,
        axis: int | None,
        num_elements: int,
        exact: bool,
    ) -> tuple[Tensor, Tensor | None]:
        y = fake_quantize(x.detach(), scale.detach(), zero_point, qmin, qmax, axis=axis)
        if exact:
            return y, None
        residual, below, above = _parts(x, scale, zero_point, qmin, qmax, axis)
        steps = residual.mul_(RESIDUAL_STEPS).round_().nan_to_num_(nan=NOT_A_NUMBER)
        return y, steps.masked_fill_(below, BELOW).masked_fill_(above, ABOVE).to(torch.int8)

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        x, scale, zero_point, ctx.qmin, ctx.qmax, ctx.axis, ctx.num_elements, ctx.exact = inputs
        ctx.set_materialize_grads(False)
        kept = x if output[1] is None else output[1]
        if output[1] is not None:
            ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(kept, scale, zero_point)

    @staticmethod
    @first_order_only
    def backward(ctx: _Context, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        kept, scale, zero_point = ctx.saved_tensors  # once: under a checkpoint each access unpacks
        e, passes = _restored(ctx, kept, scale, zero_point)
        dx = torch.where(passes, grad, 0.0) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return dx, *(None,) * 7
        # Selected, not multiplied: a gradient that is infinite where x is NaN would become NaN.
        products = torch.where(e.isnan(), 0.0, e.mul_(grad))
        first = products if ctx.axis is None else products.movedim(ctx.axis, 0)
        per_scale = first.reshape(scale.numel(), products.numel() // max(scale.numel(), 1))
        factor = scale_gradient_factor(zero_point, ctx.qmin, ctx.qmax, ctx.num_elements)
        dscale = (channel_sums(per_scale.double().unsqueeze(0)).view(scale.shape) * factor).to(scale.dtype)
        return dx, dscale, *(None,) * 6


def _restored(ctx: _Context, kept: Tensor, scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """Return e, float32 or float64, NaN where x is; and where the gradient of x passes."""
    shown = along_axis(zero_point, kept, ctx.axis)
    if ctx.exact:
        e, below, above = _parts(kept, scale, zero_point, ctx.qmin, ctx.qmax, ctx.axis)
        passes = ~(below | above | e.isnan())
    else:
        below, above = kept == BELOW, kept == ABOVE
        passes = (kept > BELOW) & (kept < ABOVE)
        e = kept.float().div_(RESIDUAL_STEPS).masked_fill_(kept == NOT_A_NUMBER, torch.nan)
    e = torch.where(below, (ctx.qmin - shown).to(e.dtype), e)
    return torch.where(above, (ctx.qmax - shown).to(e.dtype), e), passes
