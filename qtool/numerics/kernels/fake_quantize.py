"""Activation and fake-quantize of one tensor or a sum of two, with codes, mask and range, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qtool.numerics.grid import NO_BOUNDS
from qtool.numerics.kernels import native
from qtool.numerics.kernels.bits import BITS
from qtool.numerics.kernels.grid_ops import activated, on_grid, passes, value_range
from qtool.numerics.layout import as_dense, is_dense, laid_out_like
from qtool.numerics.mask import Mask
from qtool.numerics.quantize import along_axis, dequantize, widened

if TYPE_CHECKING:
    from qtool.numerics.grid import Bounds, Grid


class QuantizedValues(NamedTuple):
    """What the pass leaves.

    Attributes:
        values: dtype and shape of the input; its memory format where that is dense.
        codes: `grid.code_dtype`, as `values` lie; None where not wanted, without a grid, and where a value is NaN.
        mask: where the gradient passes; None where not wanted.
        low: smallest value before it is rounded to the grid, float32 `()`; NaN if any is, inf of nothing.
        high: the largest, likewise; -inf of nothing.
    """

    values: Tensor
    codes: Tensor | None
    mask: Mask | None
    low: Tensor
    high: Tensor


def quantize_values(
    x: Tensor,
    grid: Grid | None,
    bounds: Bounds = NO_BOUNDS,
    addend: Tensor | None = None,
    *,
    wants_codes: bool = True,
    wants_mask: bool = True,
    in_place: bool = False,
) -> QuantizedValues:
    """Return `clamp(x + addend, bounds)` on the grid.

    The sum is taken in float32 (float64 for float64 x) and not rounded to the dtype of x before the grid.

    Args:
        x: any float dtype, shape and layout.
        grid: one scale, or one for each index of its axis; None: only sum and activation.
        bounds: of the activation.
        addend: dtype and shape of x, any layout.
        wants_codes: whether codes are of use.
        wants_mask: whether there will be a backward.
        in_place: the values may take the place of `x`.

    Raises:
        DtypeError: x is not floating.
        RangeError: the scales of the grid do not fit the axis.

    Example:
        >>> grid = Grid(torch.tensor(0.5), torch.tensor(4), 0, 15)
        >>> values, codes, mask, low, high = quantize_values(torch.tensor([-9.0, 0.26, 0.74, 9.0]), grid)
        >>> values, codes
        (tensor([-2.0000,  0.5000,  0.5000,  5.5000]), tensor([ 0,  5,  5, 15], dtype=torch.uint8))
        >>> mask.apply(torch.ones(4)), float(low), float(high)
        (tensor([0., 1., 1., 0.]), -9.0, 9.0)
    """
    x = as_dense(x)
    addend = None if addend is None else laid_out_like(addend, x)
    if grid is not None:
        along_axis(grid.scale, x, grid.axis)  # raises if it does not fit
    if x.dtype in native.DTYPES and native.takes_grid(grid) and native.takes(x, addend):
        return _quantize_natively(x, grid, bounds, addend, wants_codes, wants_mask, in_place)
    y = widened(x) if addend is None else widened(x) + widened(addend)
    y = activated(y, bounds)
    if grid is None:
        values, codes = y.to(x.dtype, copy=True), None
    else:
        values, codes = on_grid(y, grid, x.dtype, wants_codes=wants_codes)
    mask = Mask.from_bool(passes(y, grid, bounds)) if wants_mask else None
    return QuantizedValues(values, codes, mask, *value_range(y))


def _quantize_natively(
    x: Tensor,
    grid: Grid | None,
    bounds: Bounds,
    addend: Tensor | None,
    wants_codes: bool,
    wants_mask: bool,
    in_place: bool,
) -> QuantizedValues:
    if addend is not None and addend.dtype != x.dtype:
        addend = addend.to(x.dtype)
    source = native.Input(x.data_ptr(), native.address(addend), count=x.numel(), dtype=native.DTYPES[x.dtype])
    bits = torch.empty((x.numel() + BITS - 1) // BITS, dtype=torch.uint8) if wants_mask else None
    done = native.quantize(source, x, bounds, grid, bits, wants_codes=wants_codes, in_place=in_place)
    mask = None if bits is None else Mask.from_bits(bits, done.num_blocked, done.values)
    return QuantizedValues(done.values, done.codes, mask, done.low, done.high)


def decode(codes: Tensor, grid: Grid, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values that codes stand for: `(code - zero_point) * scale` in float32, then in `dtype`.

    Args:
        codes: uint8 or int8, any shape and layout.
        grid: what they stand for.
        dtype: of the result.

    Returns:
        Shape and memory format of `codes`; the bits of the values that the codes were made with.

    Example:
        >>> decode(torch.tensor([3], dtype=torch.uint8), Grid(torch.tensor(0.5), torch.tensor(4), 0, 15))
        tensor([-0.5000])
    """
    along_axis(grid.scale, codes, grid.axis)
    if dtype in native.DTYPES and is_dense(codes) and native.takes_grid(grid) and native.takes(codes):
        return native.decode(codes, grid, dtype)
    return dequantize(codes, grid.scale, grid.zero_point, axis=grid.axis).to(dtype)
