"""A scale as a parameter: always positive, equal to where it started until an optimizer moves it.

    scale = start * (1 + shift)     shift >= 0
            start / (1 - shift)     shift < 0

`shift` is a pure number, so an optimizer whose steps do not depend on the size of gradients (Adam) moves every scale by
the same share. Sums and quotients alone: no exponential, whose last bits differ between devices.

Shapes: all tensors `()` or `(C,)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.first_order import first_order_only
from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]


def grown_scale(start: Tensor, shift: Tensor) -> Tensor:
    """Return the scale that `shift` stands for, differentiable with respect to `shift`.

    Gradient: that of the scale, times `slope / start`; slope is 1 for shift >= 0, else `1 / (1 - shift)^2`. That is the
    derivative divided by start^2, so that a step of SGD with learning rate lr moves the scale by
    `-lr * slope^2 * gradient`: what it does to a scale that is a parameter itself, as long as shift >= 0. Where
    the scale is at an end of its range, a gradient that leads further out is dropped.

    Args:
        start: float32, SCALE_FLOOR..SCALE_CEILING.
        shift: float32, any finite number.

    Returns:
        float32, SCALE_FLOOR..SCALE_CEILING; `start`, bit for bit, where shift is 0.

    Example:
        >>> start = torch.tensor([0.5, 0.5, 0.5])
        >>> shift = torch.tensor([0.0, 1.0, -1.0], requires_grad=True)
        >>> scale = grown_scale(start, shift)
        >>> scale.detach()
        tensor([0.5000, 1.0000, 0.2500])
        >>> scale.sum().backward()
        >>> shift.grad
        tensor([2.0000, 2.0000, 0.5000])
    """
    return _GrownScale.apply(start, shift)


class _GrownScale(torch.autograd.Function):
    """`grown_scale` with its gradient; saves its inputs and its output, which are as small as a scale."""

    @staticmethod
    def forward(start: Tensor, shift: Tensor) -> Tensor:
        ratio = torch.where(shift >= 0, 1 + shift.double(), 1 / (1 - shift.double()))
        return (start.double() * ratio).clamp(SCALE_FLOOR, SCALE_CEILING).float()

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @first_order_only
    def backward(ctx: _Context, grad: Tensor | None) -> tuple[None, Tensor | None]:
        if grad is None:
            return None, None
        start, shift, scale = ctx.saved_tensors
        leads_out = ((scale <= SCALE_FLOOR) & (grad > 0)) | ((scale >= SCALE_CEILING) & (grad < 0))
        slope = torch.where(shift >= 0, 1.0, (1 - shift).square().reciprocal())
        return None, torch.where(leads_out, 0.0, grad * slope / start)
