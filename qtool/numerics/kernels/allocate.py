"""Memory for large results: in large pages, and in place of what lies freed.

A fresh tensor above some megabytes is memory that the system has yet to give, page by page, on first touch. With pages
of 4 KiB that takes longer than to fill it: fake-quantizing 40 million numbers takes a third of the time with pages of
2 MiB (docs/decisions/007-native-kernels.md). Only whole large pages inside the tensor are asked for, so it takes no
more memory.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

LARGE_PAGE = 2 << 20
"""Bytes; x86-64 and most others."""
WORTH_ASKING = 4 * LARGE_PAGE
MAPPED_APART = 32 << 20
"""Bytes; source: DEFAULT_MMAP_THRESHOLD_MAX in glibc's malloc/malloc.c."""


def allocate_like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of undefined values with the shape and memory format of a dense `x`, on the CPU."""
    fresh = torch.empty_like(x, dtype=dtype)
    if fresh.nbytes >= WORTH_ASKING and _libc() is not None:
        begin = -(-fresh.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        end = (fresh.data_ptr() + fresh.nbytes) // LARGE_PAGE * LARGE_PAGE
        _libc().madvise(begin, end - begin, mmap.MADV_HUGEPAGE)  # advice: where it is not taken, nothing changes
    return fresh


def make_room(num_bytes: int) -> None:
    """Give freed memory back to the system before large tensors of that many bytes are made.

    Blocks from 32 MiB on are mapped apart, so what lies freed in the heap serves none of them: without this a step's
    highest point holds both.
    """
    if num_bytes >= MAPPED_APART and _libc() is not None and hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)


@lru_cache(maxsize=1)
def _libc() -> Any:  # noqa: ANN401 - ctypes
    """Return the C library where it has large pages, else None."""
    libc = ctypes.CDLL(None) if hasattr(mmap, "MADV_HUGEPAGE") else None
    if libc is None or not hasattr(libc, "madvise"):
        return None
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
