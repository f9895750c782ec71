"""A value with the gradient of another one that is close to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx


def straight_through(value: Tensor, smooth: Tensor) -> Tensor:
    """Return `value`, bit for bit, through which gradients flow as if it were `smooth`.

    Args:
        value: what is computed; not differentiated.
        smooth: what it stands for, same shape and dtype.

    Source: straight-through estimator, Bengio et al. 2013, arXiv:1308.3432.

    Example:
        >>> x = torch.tensor([0.4], requires_grad=True)
        >>> y = straight_through(x.detach().round(), 3 * x)
        >>> y.sum().backward()
        >>> y.detach(), x.grad
        (tensor([0.]), tensor([3.]))
    """
    if not (torch.is_grad_enabled() and smooth.requires_grad):
        return value
    return _StraightThrough.apply(smooth, value)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, smooth: Tensor, value: Tensor) -> Tensor:
        return value.detach().clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None
