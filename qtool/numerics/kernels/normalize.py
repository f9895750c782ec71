"""Batch norm as an affine per channel, with the activation and the grid behind it in the same pass; and its backward.

Backward keeps `x` alone: `y` is computed again from it by the same operations, and with it where the gradient passes.

    y = clamp(x * factor[c] + shift[c], bounds)        two roundings, never one by fma
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from qtool.numerics.kernels import native
from qtool.numerics.kernels.channels import beside, dense, like, planes_or_rows
from qtool.numerics.kernels.grid_ops import activated, on_grid, passes, value_range
from qtool.numerics.kernels.ordered_sum import channel_sums
from qtool.numerics.quantize import widened

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.numerics.grid import Bounds, Grid


class Quantized(NamedTuple):
    """What a normalizing pass leaves.

    Attributes:
        values: dtype, shape and memory format of the input.
        codes: `grid.code_dtype`; None without a grid, and where a value is NaN.
        low: smallest `y` before it is rounded to the grid, float32 `()`; NaN if any is.
        high: the largest, likewise.
    """

    values: Tensor
    codes: Tensor | None
    low: Tensor
    high: Tensor


class Coefficients(NamedTuple):
    """How the gradient of `x` follows: `g * a[c] + ((x - m[c]) * b[c] + k[c])`; float32 `(C,)`, float64 for float64.

    With frozen statistics m, b and k are None: `g * a[c]`.
    """

    a: Tensor
    m: Tensor | None = None
    b: Tensor | None = None
    k: Tensor | None = None


def normalize_quantize(
    x: Tensor, factor: Tensor, shift: Tensor, bounds: Bounds, grid: Grid | None, *, in_place: bool = False
) -> Quantized:
    """Return `y` on the grid, its codes and its range; without a grid `y` itself.

    Args:
        x: any float dtype, `(N, C, ...)`.
        factor: float32 `(C,)`, float64 for float64 x.
        shift: likewise.
        bounds: of the activation.
        grid: one scale, or None.
        in_place: the values may take the place of `x`.

    Example:
        >>> x, one = torch.tensor([[0.26], [-9.0]]), torch.ones(1)
        >>> normalize_quantize(x, one, one * 0, Bounds(0.0), Grid(torch.tensor(0.1), torch.tensor(0), 0, 255))[:2]
        (tensor([[0.3000], [0.0000]]), tensor([[3], [0]], dtype=torch.uint8))
    """
    x = dense(x)
    if x.dtype in native.DTYPES and _is_native(x, grid, factor, shift):
        inner = native.neighbours(x, 1)
        factor, shift = native.repeated((factor, shift), inner)
        dtype, told = native.DTYPES[x.dtype], (x.data_ptr(), None, factor.data_ptr(), shift.data_ptr())
        source = native.Input(*told, factor.numel(), inner, x.numel(), dtype)
        done = native.quantize(source, x, bounds, grid, None, wants_codes=True, in_place=in_place)
        return Quantized(done.values, done.codes, done.low, done.high)
    y = _normalized(x, factor, shift, bounds)
    values, codes = (y.to(x.dtype), None) if grid is None else on_grid(y, grid, x.dtype, wants_codes=True)
    return Quantized(values, codes, *value_range(y))


def normalize_sums(
    x: Tensor, grad: Tensor, factor: Tensor, shift: Tensor, centre: Tensor, bounds: Bounds, grid: Grid | None
) -> tuple[Tensor, Tensor]:
    """Return, for each channel, the sums of g and of `g * (x - centre)`, g being the gradient where it passes.

    Args:
        x: as in `normalize_quantize`.
        grad: of the values; dtype and shape of x, any layout.
        factor: as in `normalize_quantize`.
        shift: likewise.
        centre: float64 `(C,)`.
        bounds: as in `normalize_quantize`.
        grid: likewise.

    Returns:
        Two float64 `(C,)`. The second is computed as `sum(g * x) - centre * sum(g)`.
    """
    x = dense(x)
    grad = like(grad, x)
    if _is_float32(x, grad) and _is_native(x, grid, grad, factor, shift):
        total, product = native.channel_sums(native.channels_of(x, grad, factor, shift), bounds, grid)
    else:
        total, product = _aten_sums(x, grad, factor, shift, bounds, grid)
    return total, product - centre * total


def normalize_grad(
    x: Tensor,
    grad: Tensor,
    factor: Tensor,
    shift: Tensor,
    bounds: Bounds,
    grid: Grid | None,
    coefficients: Coefficients,
    *,
    in_place: bool = False,
) -> Tensor:
    """Return the gradient of `x`: `g * a[c] + ((x - m[c]) * b[c] + k[c])`, g being the gradient where it passes.

    Args:
        x: as in `normalize_quantize`.
        grad: of the values; dtype and shape of x, any layout.
        factor: as in `normalize_quantize`.
        shift: likewise.
        bounds: likewise.
        grid: likewise.
        coefficients: see there; a plain tuple will do.
        in_place: the result may take the place of `x`.

    Returns:
        dtype, shape and memory format of `x`.
    """
    x = dense(x)
    grad = like(grad, x)
    if _is_float32(x, grad) and _is_native(x, grid, grad, factor, shift, *coefficients):
        return native.normalize_grad(x, grad, factor, shift, bounds, grid, tuple(coefficients), in_place=in_place)
    a, m, b, k = coefficients
    grad = widened(_passing(x, grad, factor, shift, bounds, grid)) * beside(a, x)
    if m is not None and b is not None and k is not None:
        grad = grad + ((widened(x) - beside(m, x)) * beside(b, x) + beside(k, x))
    return grad.to(x.dtype)


def _is_native(x: Tensor, grid: Grid | None, *others: Tensor | None) -> bool:
    """Return whether C code may do it: all in float32 but perhaps x, and a single scale."""
    is_known = grid is None or grid.axis is None
    return is_known and _is_float32(*others) and native.takes_grid(grid) and native.takes(x, *others)


def _is_float32(*tensors: Tensor | None) -> bool:
    return all(each is None or each.dtype == torch.float32 for each in tensors)


def _normalized(x: Tensor, factor: Tensor, shift: Tensor, bounds: Bounds) -> Tensor:
    return activated(widened(x) * beside(factor, x) + beside(shift, x), bounds)


def _passing(x: Tensor, grad: Tensor, factor: Tensor, shift: Tensor, bounds: Bounds, grid: Grid | None) -> Tensor:
    return grad.where(passes(_normalized(x, factor, shift, bounds), grid, bounds), 0.0)


def _aten_sums(
    x: Tensor, grad: Tensor, factor: Tensor, shift: Tensor, bounds: Bounds, grid: Grid | None
) -> tuple[Tensor, Tensor]:
    g = planes_or_rows(_passing(x, grad, factor, shift, bounds, grid)).double()
    return channel_sums(g), channel_sums(g * planes_or_rows(x).double())
