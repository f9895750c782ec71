"""The C functions of max_pool.c for tensors that lie as `(N, C, D, H, W)`, contiguous or channels-last."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_int64, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.kernels import native
from qtool.numerics.kernels.compiled import library
from qtool.numerics.kernels.native import address, threads_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.numerics.kernels.max_pool import Windows

GRADIENTS = {torch.float32: "qtool_max_pool_grad_float32", torch.bfloat16: "qtool_max_pool_grad_bfloat16"}


class Geometry(ctypes.Structure):
    """See max_pool.c."""

    _fields_ = (
        *(("images", c_int64), ("channels", c_int64), ("in", c_int64 * 3), ("out", c_int64 * 3)),
        *(("kernel", c_int64 * 3), ("stride", c_int64 * 3), ("padding", c_int64 * 3), ("dilation", c_int64 * 3)),
        *(("channels_last", c_int64), ("is_signed", c_int64)),
    )


def functions() -> ctypes.CDLL:
    """Return max_pool.c, for tensors that `takes` took."""
    compiled = _functions()
    assert compiled is not None
    return compiled


@lru_cache(maxsize=1)
def _functions() -> ctypes.CDLL | None:
    """Return max_pool.c with the types of its functions, or None."""
    compiled = library("max_pool.c")
    if compiled is None:
        return None
    compiled.qtool_replace_codes.argtypes = (c_void_p, c_void_p, c_void_p, c_int64, c_int)
    compiled.qtool_replace_codes.restype = None
    compiled.qtool_max_pool_codes.argtypes = (c_void_p, c_void_p, c_void_p, POINTER(Geometry), c_int)
    for name in GRADIENTS.values():
        getattr(compiled, name).argtypes = (c_void_p, c_void_p, c_void_p, POINTER(Geometry), c_int)
        getattr(compiled, name).restype = None
    return compiled


def takes(*tensors: Tensor) -> bool:
    """Return whether C code may read these tensors."""
    return native.takes(*tensors) and _functions() is not None


def max_pool_codes(
    x: Tensor, shape: Sequence[int], windows: Windows, table: Tensor | None, memory_format: torch.memory_format
) -> tuple[Tensor, Tensor]:
    """Return the codes of the largest values and their places, of this shape and format."""
    if table is not None:
        x = _replaced(x, table)
    codes = torch.empty(shape, dtype=x.dtype, memory_format=memory_format)
    places = torch.empty(shape, dtype=torch.uint8, memory_format=memory_format)
    geometry = _geometry(x, codes, windows, memory_format)
    threads = threads_for(x.numel())
    if functions().qtool_max_pool_codes(address(x), address(codes), address(places), geometry, threads):
        msg = f"no memory for a row of a tensor of shape {tuple(x.shape)}"
        raise MemoryError(msg)
    return codes, places


def max_pool_grad(
    grad: Tensor, places: Tensor, like: Tensor, windows: Windows, memory_format: torch.memory_format
) -> Tensor:
    """Return the gradient of the input, which lies like `like`."""
    dx = torch.empty(like.shape, dtype=grad.dtype, memory_format=memory_format)
    geometry = _geometry(dx, places, windows, memory_format)
    add_up = getattr(functions(), GRADIENTS[grad.dtype])
    add_up(address(grad), address(places), address(dx), geometry, threads_for(dx.numel()))
    return dx


def _replaced(x: Tensor, table: Tensor) -> Tensor:
    replaced = torch.empty_like(x)
    functions().qtool_replace_codes(address(x), address(replaced), address(table), x.numel(), threads_for(x.numel()))
    return replaced


def _geometry(x: Tensor, output: Tensor, windows: Windows, memory_format: torch.memory_format) -> Geometry:
    places = windows.kernel, windows.stride, windows.padding, windows.dilation
    triples = ((c_int64 * 3)(*triple) for triple in (x.shape[2:], output.shape[2:], *places))
    is_channels_last = memory_format is torch.channels_last_3d
    return Geometry(*x.shape[:2], *triples, is_channels_last, x.dtype == torch.int8)
