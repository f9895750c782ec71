"""The resident size of this process: now, and the highest of a stretch of work."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qtool.training.malloc import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIZES = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Source: Linux, Documentation/filesystems/proc.rst: writing 5 resets VmHWM to the current resident size."""

SECONDS_BETWEEN_SAMPLES = 0.001


@dataclass
class Peak:
    """The highest resident size of a stretch of work over the one before it; known when the work is done."""

    num_bytes: int = 0


def resident_bytes() -> int:
    """Return the bytes of memory that this process has in RAM."""
    return int(_SIZES.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def can_measure() -> bool:
    """Whether this system tells the resident size."""
    return _SIZES.exists()


def growth_of(work: Callable[[], object]) -> int:
    """Return by how many bytes the resident size has grown while the result of `work` is alive.

    Freed memory is given back before and after, so this is what the result holds; exact to some pages where malloc
    maps large blocks (`Malloc.RETURN`).
    """
    settle()
    before = resident_bytes()
    result = work()
    give_back()
    grown = resident_bytes() - before
    del result
    return grown


def settle() -> None:
    """Let go of what nobody refers to, and give it back to the system."""
    gc.collect()
    give_back()


@contextmanager
def peak_over_base() -> Iterator[Peak]:
    """Yield what holds, after the block, how far the resident size rose in it over the one before.

    The kernel's own record of the highest size, which misses nothing; where it cannot be reset, a thread that looks
    every millisecond.

    Example:
        >>> with peak_over_base() as peak:
        ...     x = torch.ones(64, 1024, 1024)
        ...     del x
        >>> round(peak.num_bytes / 2**20)
        256
    """
    peak = Peak()
    give_back()
    with _highest() as highest:
        before = resident_bytes()
        yield peak
        peak.num_bytes = max(highest() - before, 0)


def peak_source() -> str:
    """Return where peaks come from, in words."""
    return "VmHWM, reset before each step" if _reset_record() else "sampled every millisecond"


@contextmanager
def _highest() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the highest resident size since then."""
    if _reset_record():
        yield _record
        return
    with _Sampler() as sampler:
        yield sampler.highest


def _reset_record() -> bool:
    try:
        _RESET.write_text(_RESET_PEAK)
    except OSError:
        return False  # a kernel without the file, or a sandbox that forbids it
    return True


def _record() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


class _Sampler:
    """A thread that looks at the resident size every millisecond."""

    def __init__(self) -> None:
        self._highest = resident_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def highest(self) -> int:
        """Return the highest size seen, now included."""
        return max(self._highest, resident_bytes())

    def _watch(self) -> None:
        while not self._done.wait(SECONDS_BETWEEN_SAMPLES):
            self._highest = max(self._highest, resident_bytes())
