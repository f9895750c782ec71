"""Quantize and dequantize in one step, for training: pure function, thin autograd function, public function.

    y  = (clamp(round_half_even(x * inv_scale) + zero_point, qmin, qmax) - zero_point) * scale
    dx = dy where clamping changed nothing, else 0

Backward keeps one bit an element, or nothing when nothing was clamped; it never keeps the input.

Shapes: x any; scale and zero_point `()` without axis, `(x.shape[axis],)` with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.layout import flatten_as_stored, memory_order, restore_from_stored
from qtool.numerics.mask import pack_mask, unpack_mask
from qtool.numerics.quantize import along_axis, scaled_and_rounded

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        order: list[int]


def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, *, axis: int | None = None
) -> Tensor:
    """Return `x` rounded to the grid of its codes, differentiable with respect to `x`.

    NaN stays NaN, so a diverged training shows; infinities get the nearer end of the range. The gradient passes
    where the rounded value lies in qmin..qmax, and is 0 where it was clamped, for infinities and for NaN.

    Args:
        x: float16, bfloat16, float32 or float64; any shape, layout and size, also empty.
        scale: float32, > 0; not differentiated.
        zero_point: int32, qmin..qmax.
        qmin: smallest code.
        qmax: largest code.
        axis: the channel axis, negative counts from the end; None for one scale.

    Returns:
        dtype, shape and memory format of `x`.

    Raises:
        DtypeError: x is not floating.
        RangeError: scale has not one entry per channel.

    Source: straight-through estimator, Bengio et al. 2013, arXiv:1308.3432; same numbers as ATen's
        `fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine` for finite input (for float64 the
        latter does not round its values to float32).

    Example:
        >>> x = torch.tensor([-9.0, 0.26, 0.74, 9.0], requires_grad=True)
        >>> y = fake_quantize(x, torch.tensor(0.5), torch.tensor(4, dtype=torch.int32), 0, 15)
        >>> y.detach()
        tensor([-2.0000,  0.5000,  0.5000,  5.5000])
        >>> y.sum().backward()
        >>> x.grad
        tensor([0., 1., 1., 0.])
    """
    if torch.is_grad_enabled() and x.requires_grad:
        return _FakeQuantize.apply(x, scale, zero_point, qmin, qmax, axis)
    steps = scaled_and_rounded(x, scale, axis).add_(along_axis(zero_point, x, axis))
    return _to_values(steps.clamp_(qmin, qmax), x, scale, zero_point, axis)


class _FakeQuantize(torch.autograd.Function):
    """`fake_quantize` with its gradient; saves a packed mask or nothing."""

    @staticmethod
    def forward(
        ctx: _Context, x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int | None
    ) -> Tensor:
        steps = scaled_and_rounded(x, scale, axis).add_(along_axis(zero_point, x, axis))
        codes = steps.clamp(qmin, qmax)
        _keep_mask(ctx, codes == steps)  # False for NaN, which equals nothing
        return _to_values(codes, x, scale, zero_point, axis)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        saved = ctx.saved_tensors  # once: under a checkpoint each access unpacks, and a second one is an error
        if saved:
            (packed,) = saved
            mask = restore_from_stored(unpack_mask(packed, grad.numel()), grad.shape, ctx.order)
            # A product with the mask would turn an infinite gradient into NaN.
            grad = torch.where(mask, grad, 0.0)
        return grad, None, None, None, None, None


def _keep_mask(ctx: _Context, mask: Tensor) -> None:
    # Asking whether anything was clamped waits for the device, and breaks a traced graph: only on the CPU.
    can_ask = mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if can_ask and bool(mask.all()):
        return
    ctx.order = memory_order(mask)
    ctx.save_for_backward(pack_mask(flatten_as_stored(mask)))


def _to_values(codes: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None) -> Tensor:
    """Turn float codes into values, in place if it can; the result has the dtype of `x`."""
    # A code stands for one float32 number, whatever the dtype of the tensor that it was made from.
    return codes.float().sub_(along_axis(zero_point, x, axis)).mul_(along_axis(scale, x, axis)).to(x.dtype)
