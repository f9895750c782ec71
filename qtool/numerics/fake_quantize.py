"""Quantize and dequantize in one step, for training: the autograd function and the public function.

    y  = (clamp(round_half_even(x * inv_scale) + zero_point, qmin, qmax) - zero_point) * scale
    dx = dy where clamping changed nothing, else 0

Backward never keeps the input. It keeps a `Mask`: nothing when nothing was clamped, the indices of what was clamped
when that is little, else one bit an element.

Shapes: x any; scale and zero_point `()` without axis, `(x.shape[axis],)` with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.grid import Grid
from qtool.numerics.kernels.fake_quantize import quantize_values
from qtool.numerics.layout import memory_order
from qtool.numerics.mask import Mask

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        shape: tuple[int, ...]
        order: tuple[int, ...]


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
        values, _ = _FakeQuantize.apply(x, scale, zero_point, qmin, qmax, axis)
        return values
    return quantize_values(x, Grid(scale, zero_point, qmin, qmax, axis), wants_codes=False, wants_mask=False).values


class _FakeQuantize(torch.autograd.Function):
    """`fake_quantize` with its gradient. Its second output is what the mask stores: only outputs can be saved."""

    @staticmethod
    def forward(
        x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int | None
    ) -> tuple[Tensor, Tensor | None]:
        values, _, mask, _, _ = quantize_values(x, Grid(scale, zero_point, qmin, qmax, axis), wants_codes=False)
        assert mask is not None
        return values, mask.stored

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor | None]) -> None:
        values, stored = output
        ctx.shape, ctx.order = tuple(values.shape), tuple(memory_order(values))
        ctx.set_materialize_grads(False)
        if stored is not None:
            ctx.mark_non_differentiable(stored)
            ctx.save_for_backward(stored)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: under a checkpoint each access unpacks, and a second one is an error
        if grads[0] is None:
            return (None,) * 6
        mask = Mask(saved[0] if saved else None, ctx.shape, ctx.order)
        return mask.apply(grads[0]), None, None, None, None, None
