"""The C functions of codes.c: uint8 codes to codes, by address. What they compute is defined where they are called."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.kernels.compiled import library

if TYPE_CHECKING:
    from collections.abc import Sequence

WORTH_A_THREAD = 65536
"""Codes for each thread: an element takes a third of a nanosecond, waking a thread some microseconds."""

MOST_CHANNELS = 4
"""See codes.c."""

MOST_PIXELS = 2**23
"""A channel's codes are summed in 32 bits."""


class Result(ctypes.Structure):
    """See codes.c."""

    _fields_ = (("inverse", c_float), ("zero_point", c_float), ("low", c_float), ("high", c_float))


class Operand(ctypes.Structure):
    """See codes.c."""

    _fields_ = (("scale", c_float), ("zero_point", c_float))


class Pair(ctypes.Structure):
    """See codes.c."""

    _fields_ = (("a", Operand), ("b", Operand), ("result", Result), ("multiplies", c_int32))


class Average(ctypes.Structure):
    """See codes.c."""

    _fields_ = tuple((name, c_double) for name in ("factor", "offset", "zero_point", "low", "high"))


@lru_cache(maxsize=1)
def functions() -> ctypes.CDLL | None:
    """Return codes.c with the types of its functions, or None where it cannot be compiled."""
    compiled = library("codes.c")
    if compiled is None:
        return None
    types: dict[str, Sequence[type]] = {
        "pair": (c_void_p, c_void_p, c_void_p, c_int64, POINTER(Pair), c_int),
        "clamp": (c_void_p, c_int64, c_int, c_int, c_int),
        "quantize": (c_void_p, c_void_p, c_int64, POINTER(Result), c_int),
        "dequantize": (c_void_p, c_void_p, c_int64, POINTER(Operand), c_int),
        "average": (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int, POINTER(Average), c_int),
        "look_up": (c_void_p, c_void_p, c_int64, c_void_p, c_int),
    }
    for name, arguments in types.items():
        getattr(compiled, f"qtool_{name}_codes").argtypes = arguments
        getattr(compiled, f"qtool_{name}_codes").restype = None
    to_channels_last = compiled.qtool_quantize_to_channels_last
    to_channels_last.argtypes = (c_void_p, c_void_p, c_int64, c_int64, c_int64, POINTER(Result), c_int)
    to_channels_last.restype = None
    return compiled


def takes(x: Tensor) -> bool:
    """Return whether C code may read a tensor by its address, and nobody records what is done to it."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and torch._C._get_tracing_state() is None
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and not torch.compiler.is_compiling()
    )


def is_dense(x: Tensor) -> bool:
    """Return whether the elements fill the memory in one of the orders that models use."""
    if x.is_contiguous():
        return True
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)


def threads_for(count: int) -> int:
    """Return how many threads that many codes are worth."""
    return 1 if count < 2 * WORTH_A_THREAD else min(torch.get_num_threads(), count // WORTH_A_THREAD)
