"""The C functions of quantize.c for tensors: which tensors they take, and what they are told."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qtool.numerics.kernels.allocate import allocate_like
from qtool.numerics.kernels.channels import planes_or_rows
from qtool.numerics.kernels.compiled import library
from qtool.numerics.layout import memory_order

if TYPE_CHECKING:
    from qtool.numerics import grid

DTYPES = {torch.float32: 0, torch.bfloat16: 1}
WORTH_A_VECTOR_LOOP = 1024
"""Parameters of innermost channels are repeated up to this many: a loop of three elements is no loop."""
LARGE = 2**62
WORTH_A_THREAD = 32768
"""Elements for each thread; waking one takes about as long as 10 000 elements."""


class Bounds(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (("low", c_float), ("high", c_float), ("has_low", c_int32), ("has_high", c_int32))


class Grid(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (
        *(("scale", c_void_p), ("zero_point", c_void_p)),
        *(("channels", c_int64), ("inner", c_int64)),
        *(("qmin", c_float), ("qmax", c_float)),
    )


class Input(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (
        *(("values", c_void_p), ("addend", c_void_p), ("factor", c_void_p), ("shift", c_void_p)),
        *(("channels", c_int64), ("inner", c_int64), ("count", c_int64), ("dtype", c_int32)),
    )


class Output(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (
        *(("values", c_void_p), ("codes", c_void_p), ("bits", c_void_p), ("range", c_void_p)),
        *(("blocked", c_int64), ("has_nan", c_int32)),
    )


class Channels(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (
        *(("x", c_void_p), ("grad", c_void_p), ("factor", c_void_p), ("shift", c_void_p)),
        *(("batch", c_int64), ("channels", c_int64), ("plane", c_int64), ("rows", c_int64), ("tile", c_int64)),
    )


class Sums(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (("total", c_void_p), ("product", c_void_p), ("low", c_void_p), ("high", c_void_p))


class Gradient(ctypes.Structure):
    """See quantize.c."""

    _fields_ = (
        *(("x", c_void_p), ("grad", c_void_p), ("out", c_void_p), ("factor", c_void_p), ("shift", c_void_p)),
        *(("a", c_void_p), ("m", c_void_p), ("b", c_void_p), ("k", c_void_p)),
        *(("channels", c_int64), ("inner", c_int64), ("count", c_int64)),
    )


def functions() -> ctypes.CDLL:
    """Return quantize.c, for tensors that `takes` took."""
    native = _functions()
    assert native is not None
    return native


@lru_cache(maxsize=1)
def _functions() -> ctypes.CDLL | None:
    native = library("quantize.c")
    if native is None:
        return None
    grid, channels = POINTER(Grid), (POINTER(Channels), Bounds, POINTER(Grid), POINTER(Sums), c_int)
    native.qtool_quantize.argtypes = (POINTER(Input), Bounds, grid, POINTER(Output), c_int)
    native.qtool_decode.argtypes = (c_void_p, c_int, grid, c_void_p, c_int, c_int64, c_int)
    native.qtool_select.argtypes = (c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int)
    native.qtool_blocked_indices.argtypes = (c_void_p, c_int64, c_void_p, c_int)
    native.qtool_plane_sums.argtypes = native.qtool_row_sums.argtypes = channels
    native.qtool_normalize_grad.argtypes = (POINTER(Gradient), Bounds, grid, c_int)
    for name in ("quantize", "decode", "select", "blocked_indices", "normalize_grad"):
        getattr(native, f"qtool_{name}").restype = None
    return native


def takes(*tensors: Tensor | None) -> bool:
    """Return whether C code may read these tensors: plain ones on the CPU, outside of any tracing and autograd."""
    if torch.compiler.is_compiling():
        return False
    return all(map(_is_plain, tensors)) and _functions() is not None


def _is_plain(x: Tensor | None) -> bool:
    if x is None:
        return True
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and not (x.requires_grad and torch.is_grad_enabled())
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and not (x.is_neg() or x.is_conj())
    )


def threads_for(count: int) -> int:
    """Return how many threads that many elements are worth."""
    return max(1, min(torch.get_num_threads(), count // WORTH_A_THREAD))


def bounds_of(bounds: grid.Bounds) -> Bounds:
    """Return the bounds of an activation as C knows them."""
    low, high = bounds
    return Bounds(low, high, low != -inf, high != inf)


def takes_grid(grid: grid.Grid | None) -> bool:
    """Return whether C code may read the numbers of a grid."""
    if grid is None:
        return True
    is_known = grid.scale.dtype == torch.float32 and (grid.axis is not None or grid.scale.numel() == 1)
    return is_known and takes(grid.scale, grid.zero_point)


def grid_of(grid: grid.Grid | None, x: Tensor) -> Grid:
    """Return a grid as C knows it, for tensors laid out as the dense `x`."""
    if grid is None:
        return Grid()
    inner = LARGE if grid.axis is None else neighbours(x, grid.axis)
    numbers = grid.scale, grid.zero_point.to(torch.int32)
    scale, zero_point = numbers if grid.axis is None else repeated(numbers, inner)
    told = Grid(scale.data_ptr(), zero_point.data_ptr(), scale.numel(), inner, grid.qmin, grid.qmax)
    told.alive = scale, zero_point
    return told


def neighbours(x: Tensor, axis: int) -> int:
    """Return how many neighbours in memory share an index of an axis of the dense `x`; 1 where it lies innermost."""
    if x.is_contiguous():  # mostly, and then there is no order to find
        return prod(x.shape[axis % x.dim() + 1 :])
    order = memory_order(x)
    inside = order[order.index(axis % x.dim()) + 1 :]
    return prod(x.shape[dim] for dim in inside)


def repeated(parameters: tuple[Tensor, ...], inner: int) -> tuple[Tensor, ...]:
    """Return the parameters of the channels contiguous, and repeated where channels lie innermost and are few."""
    num_channels = parameters[0].numel()
    times = -(-WORTH_A_VECTOR_LOOP // max(num_channels, 1)) if inner == 1 else 1
    return tuple(
        each.detach().reshape(-1).repeat(times) if times > 1 else each.detach().contiguous() for each in parameters
    )


def address(x: Tensor | None) -> int | None:
    """Return where a tensor begins; None for none."""
    return None if x is None else x.data_ptr()


class Done(NamedTuple):
    """What `quantize` leaves; see `QuantizedValues` and `Quantized`."""

    values: Tensor
    codes: Tensor | None
    num_blocked: int
    low: Tensor
    high: Tensor


def quantize(
    source: Input,
    x: Tensor,
    bounds: grid.Bounds,
    grid: grid.Grid | None,
    bits: Tensor | None,
    *,
    wants_codes: bool,
    in_place: bool,
) -> Done:
    """Return what C makes of `x`, dense, with all that `source` says to do with it; fills `bits`."""
    if in_place:
        torch.autograd.graph.increment_version(x)
    values = x if in_place else allocate_like(x)
    codes = allocate_like(x, grid.code_dtype) if wants_codes and grid is not None else None
    range_ = torch.empty(2)
    out = Output(values.data_ptr(), address(codes), address(bits), range_.data_ptr())
    functions().qtool_quantize(source, bounds_of(bounds), grid_of(grid, x), out, threads_for(x.numel()))
    return Done(values, None if out.has_nan else codes, out.blocked, *range_.unbind())


def decode(codes: Tensor, grid: grid.Grid, dtype: torch.dtype) -> Tensor:
    """Return the values of dense codes."""
    values, count = allocate_like(codes, dtype), codes.numel()
    is_signed = codes.dtype == torch.int8
    functions().qtool_decode(
        codes.data_ptr(),
        is_signed,
        grid_of(grid, codes),
        values.data_ptr(),
        DTYPES[dtype],
        count,
        threads_for(count),
    )
    return values


def channels_of(
    x: Tensor, grad: Tensor | None = None, factor: Tensor | None = None, shift: Tensor | None = None
) -> Channels:
    """Return a tensor that lies as planes or as rows as C knows it, with a gradient laid out the same."""
    lies = planes_or_rows(x)
    if lies.dim() == 3:
        parameters = () if factor is None or shift is None else repeated((factor, shift), lies.shape[2] + 1)
        sizes = {"batch": lies.shape[0], "plane": lies.shape[2]}
    else:
        tile = next(rows for rows in (16, 8, 4, 2, 1) if rows * lies.shape[1] <= 2048 or rows == 1)
        parameters = () if factor is None or shift is None else (factor.repeat(tile), shift.repeat(tile))
        sizes = {"rows": lies.shape[0], "tile": tile}
    told = Channels(x.data_ptr(), address(grad), *map(address, parameters), channels=x.shape[1], **sizes)
    told.alive = parameters
    return told


def channel_sums(
    channels: Channels,
    bounds: grid.Bounds,
    grid: grid.Grid | None,
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sums of g and g * x of each channel; without a gradient those of x and x * x, and fill the range."""
    total, product = torch.empty(2, channels.channels, dtype=torch.float64).unbind()
    out = Sums(total.data_ptr(), product.data_ptr(), address(low), address(high))
    count = channels.channels * (channels.rows or channels.batch * channels.plane)
    run = functions().qtool_row_sums if channels.tile else functions().qtool_plane_sums
    if run(channels, bounds_of(bounds), grid_of(grid, total), out, threads_for(count)):
        msg = f"no memory for the sums of {channels.channels} channels over {count} elements"
        raise MemoryError(msg)
    return total, product


def normalize_grad(
    x: Tensor,
    grad: Tensor,
    factor: Tensor,
    shift: Tensor,
    bounds: grid.Bounds,
    grid: grid.Grid | None,
    coefficients: tuple[Tensor | None, ...],
    *,
    in_place: bool,
) -> Tensor:
    """Return the gradient of `x` that lies as planes or as rows, `grad` laid out the same."""
    if in_place:
        torch.autograd.graph.increment_version(x)
    out = x if in_place else allocate_like(x)
    inner = neighbours(x, 1)
    given = repeated((factor, shift, *(each for each in coefficients if each is not None)), inner)
    told = Gradient(x.data_ptr(), grad.data_ptr(), out.data_ptr(), *map(address, given))
    told.channels, told.inner, told.count = len(given[0]), inner, x.numel()
    functions().qtool_normalize_grad(told, bounds_of(bounds), grid_of(grid, x), threads_for(x.numel()))
    return out
