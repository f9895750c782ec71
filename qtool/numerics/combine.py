"""Sum, activation and fake-quantize as one function, of which backward keeps one mask and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qtool.numerics.coded import Coded
from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels.fake_quantize import quantize_values
from qtool.numerics.mask import Mask

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        place: Mask


class Combined(NamedTuple):
    """What `combine` gives.

    Attributes:
        output: the values, differentiable, with their codes.
        low: smallest value before it is rounded to the grid, float32 `()`; NaN if any is.
        high: the largest, likewise.
    """

    output: Coded
    low: Tensor
    high: Tensor


def combine(
    x: Tensor, addend: Tensor | None = None, *, bounds: Bounds = NO_BOUNDS, grid: Grid | None = None
) -> Combined:
    """Return `clamp(x + addend, bounds)` on the grid, differentiable with respect to x and addend.

    The gradient passes strictly between the bounds, where the grid clamped nothing and y is no NaN.

    Args:
        x: any float dtype, shape and layout.
        addend: any that torch would add to `x`.
        bounds: of the activation.
        grid: one scale, or one for each index of its axis; None: no rounding, and no codes.

    Returns:
        Output and range. NaN stays NaN, and there are no codes then: a code cannot say it.

    Example:
        >>> grid = Grid(torch.tensor(0.5), torch.tensor(4, dtype=torch.int32), 0, 15)
        >>> x = torch.tensor([-9.0, 0.26, 9.0], requires_grad=True)
        >>> output, low, high = combine(x, torch.tensor([0.0, 0.5, 0.0]), bounds=Bounds(0.0, 6.0), grid=grid)
        >>> output.values.sum().backward()
        >>> output.values.detach(), output.codes, x.grad
        (tensor([0.0000, 1.0000, 5.5000]), tensor([ 4,  6, 15], dtype=torch.uint8), tensor([0., 1., 0.]))
    """
    if addend is not None and (addend.dtype != x.dtype or addend.shape != x.shape):
        # torch's rules for dtypes and broadcasting, also in the gradient, of which a sum keeps nothing.
        x, addend = x + addend, None
    if not torch.is_grad_enabled():
        values, _, _, low, high = quantize_values(x, grid, bounds, addend, wants_codes=False, wants_mask=False)
        return Combined(Coded(values), low, high)
    needs_grad = x.requires_grad or (addend is not None and addend.requires_grad)
    scale, zero_point, *rest = grid or (None, None)
    values, codes, low, high, _ = _Combine.apply(x, addend, scale, zero_point, rest, bounds, needs_grad)
    return Combined(Coded(values, codes, None if codes is None else grid), low, high)


class _Combine(torch.autograd.Function):
    """`combine` of tensors that need no conversion.

    Its gradient is linear in the incoming one and depends on nothing else that has a gradient, so that
    `once_differentiable` misses nothing.
    """

    @staticmethod
    def forward(
        x: Tensor,
        addend: Tensor | None,
        scale: Tensor | None,
        zero_point: Tensor | None,
        integers: list[Any],
        bounds: Bounds,
        wants_mask: bool,
    ) -> tuple[Any, ...]:
        grid = None if scale is None or zero_point is None else Grid(scale, zero_point, *integers)
        values, codes, mask, low, high = quantize_values(x, grid, bounds, addend, wants_mask=wants_mask)
        return values, codes, low, high, None if mask is None else mask.stored

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        values, *others = output
        ctx.set_materialize_grads(False)
        stored = others[-1]
        others = [tensor for tensor in others if tensor is not None]
        ctx.mark_non_differentiable(*others)
        ctx.place = Mask.of((), values)
        ctx.save_for_backward(*(() if stored is None else (stored,)))

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad, *_ = grads
        (stored,) = ctx.saved_tensors or (None,)
        if grad is not None and stored is not None:
            grad = Mask(stored, ctx.place.shape, ctx.place.order).apply(grad)
        return grad, grad if ctx.needs_input_grad[1] else None, *(None,) * 5
