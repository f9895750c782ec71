"""Max pooling of a tensor on a grid: the codes are pooled, and backward keeps one byte an output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qtool.numerics.coded import Coded
from qtool.numerics.grid import Grid
from qtool.numerics.kept_as_codes import kept_as_codes
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.kernels.max_pool import Windows, equal_values_first, max_pool_codes, max_pool_grad
from qtool.numerics.strides import Strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        windows: Windows
        strides: Strides


aten = torch.ops.aten

NUM_DIMS: dict[Any, int] = {
    aten.max_pool1d.default: 1,
    aten.max_pool2d.default: 2,
    aten.max_pool3d.default: 3,
}


def max_pool(
    op: Any,  # noqa: ANN401 - an ATen op
    x: Coded,
    kernel_size: Sequence[int] | int,
    stride: Sequence[int] | int = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Coded:
    """Return what the ATen op `op` makes of `x`, with codes where `x` has them; its gradient has ATen's bits.

    Of equal values the first in scan order counts. Neither the input is kept nor ATen's 8-byte indices.

    Args:
        op: a key of `NUM_DIMS`.
        x: `(N, C, *)` or `(C, *)`.
        kernel_size: and the rest as ATen's op takes them.
        stride: none: the kernel's size.
        padding: places in it are never chosen.
        dilation: from place to place.
        ceil_mode: whether a last window may reach over the end.

    Example:
        >>> grid = Grid(torch.tensor(0.5), torch.tensor(4, dtype=torch.int32), 0, 15)
        >>> values, codes = torch.tensor([[[0.0, 1.0, 1.0]]], requires_grad=True), torch.tensor([[[4, 6, 6]]])
        >>> y = max_pool(aten.max_pool1d.default, Coded(values, codes.to(torch.uint8), grid), 3)
        >>> y.values.sum().backward()
        >>> y.codes, values.grad
        (tensor([[[6]]], dtype=torch.uint8), tensor([[[0., 1., 0.]]]))
    """
    windows = Windows.of(NUM_DIMS[op], kernel_size, stride, padding, dilation, ceil_mode)
    if x.codes is None or x.grid is None or not _is_poolable(x.values, x.grid, windows):
        return Coded(kept_as_codes(op, x, kernel_size, stride, padding, dilation, ceil_mode))
    scale, zero_point, *integers = x.grid
    values, codes, _ = _MaxPool.apply(x.values, x.codes, scale, zero_point, integers, windows)
    return Coded(values, codes, x.grid)


def _is_poolable(values: Tensor, grid: Grid, windows: Windows) -> bool:
    dims = windows.num_dims
    if torch.compiler.is_compiling() or values.dim() not in (dims + 1, dims + 2):
        return False
    if grid.axis is not None and (grid.axis % values.dim() >= values.dim() - dims or values.dtype.itemsize <= 2):
        return False
    depth, height, width = (1,) * (3 - dims) + tuple(values.shape[-dims:])
    return windows.fit((depth, height, width))


class _MaxPool(torch.autograd.Function):
    """Pooling of codes; its gradient is linear in the incoming one, so `once_differentiable` misses nothing."""

    @staticmethod
    def forward(
        x: Tensor,
        codes: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        integers: list[Any],
        windows: Windows,
    ) -> tuple[Tensor, Tensor, Tensor]:
        grid = Grid(scale, zero_point, *integers)
        table = equal_values_first(grid, x.dtype) if grid.axis is None else None
        pooled, places = max_pool_codes(codes, windows, table)
        return decode(pooled, grid, x.dtype), pooled, places

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, *_, windows = inputs
        _, codes, places = output
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(codes, places)
        ctx.windows, ctx.strides = windows, Strides.of(x)
        ctx.save_for_backward(places)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad, *_ = grads
        if grad is not None:
            (places,) = ctx.saved_tensors
            grad = max_pool_grad(grad, places, ctx.windows, ctx.strides.untouched())
        return grad, *(None,) * 5
