"""How this process's malloc gives freed memory back: it decides peaks, and a good part of the time of a step.

glibc raises the size from which it maps memory (32 MiB at most) whenever a mapped block is freed, so what a process
did before decides what it does next. Two ways to train are only comparable under a setting that does not move.
"""

from __future__ import annotations

import ctypes
import os
import platform
from enum import Enum

from qtool.errors import MissingDependencyError

# Source: glibc, malloc/malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4

_MIB = 1 << 20
_LARGEST = 2**31 - 1

_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_")
"""What a caller may have set, by its beginning."""


class Malloc(Enum):
    """A setting of malloc.

    `DEFAULT` is glibc's own, which moves. `RETURN` maps every block from 1 MiB, and gives it back as soon as it is
    freed: resident size is then what is in use, and every block costs its page faults. `KEEP` maps none and gives
    none back: no page faults, and a resident size that grows by what fragmentation wastes.
    """

    DEFAULT = "default"
    RETURN = "return"
    KEEP = "keep"


_OPTIONS = {
    Malloc.RETURN: {_M_MMAP_THRESHOLD: _MIB, _M_TRIM_THRESHOLD: _MIB, _M_MMAP_MAX: 65536},
    Malloc.KEEP: {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: _LARGEST},
}
_WORDS = {
    Malloc.DEFAULT: "its default",
    Malloc.RETURN: "M_MMAP_THRESHOLD and M_TRIM_THRESHOLD 1 MiB",
    Malloc.KEEP: "M_MMAP_MAX 0, M_TRIM_THRESHOLD 2 GiB",
}


def set_malloc(setting: Malloc) -> None:
    """Let malloc have this setting from now on, in the whole process and for good: nothing leads back to the default.

    Raises:
        MissingDependencyError: this C library has no such settings.
    """
    libc = _glibc()
    for option, value in _OPTIONS.get(setting, {}).items():
        if libc.mallopt(option, value) != 1:
            msg = f"the C library refuses mallopt({option}, {value}), so no malloc setting can be fixed"
            raise MissingDependencyError(msg)


def give_back() -> None:
    """Give freed memory back to the system, where malloc can."""
    if has_glibc():
        _glibc().malloc_trim(0)


def malloc_in_words(setting: Malloc) -> str:
    """Return the setting for people, with what the caller's environment adds.

    Example:
        >>> malloc_in_words(Malloc.RETURN)
        'glibc 2.36, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD 1 MiB'
    """
    name = " ".join(platform.libc_ver()) if has_glibc() else "not glibc"
    given = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith(_VARIABLES)]
    return ", ".join([name, _WORDS[setting], *given])


def has_glibc() -> bool:
    """Whether this process runs on glibc, whose malloc has these settings."""
    return platform.libc_ver()[0] == "glibc"


def _glibc() -> ctypes.CDLL:
    if not has_glibc():
        msg = "malloc can only be set on glibc, and this Python runs on another C library"
        raise MissingDependencyError(msg)
    return ctypes.CDLL(None)
