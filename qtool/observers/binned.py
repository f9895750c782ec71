"""A histogram that grows with its data and never depends on the order of it.

Bins have the width 2^k: a value belongs to bin `floor(x / 2^k)`, a signed integer. Growing k by one merges bins
2j and 2j+1, exactly; and k is the smallest that fits the whole range seen so far into NUM_BINS bins. So the counts
are those of all data at the final k, in whatever order, in however many pieces it came, and two histograms add up
to that of both.
"""

from __future__ import annotations

from math import floor, frexp, ldexp
from typing import TYPE_CHECKING

import numpy as np
import torch

from qtool.observers.arrays import check_histogram
from qtool.observers.base import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from torch import Tensor

    from qtool.observers.base import NonFinite

NUM_BINS = 2048
"""Largest number of bins. The data spans more than half of them, so each of 256 codes is 4 to 8 bins wide.
Chosen: as many as torch.ao's HistogramObserver; see tests/observers/test_mse.py for what the estimate is worth."""

MIN_EXPONENT = -75
"""Smallest k: bins 2^-12 of the smallest scale, SCALE_FLOOR = 2^-63; finer ones could not matter."""

MANTISSA_BITS = 23
"""Bins are never finer than float32 is at the end of the range, so that a bin's number is exact in float32."""

CHUNK = 1 << 16
"""Elements counted at a time: their temporaries stay in the cache. Measured: 2.2 ns an element, 6 in one piece."""


class BinnedObserver(Observer):
    """Base of the observers that choose their range from a histogram. One range per tensor, no axis.

    Attributes:
        counts: int64 `(NUM_BINS,)`, how many values lie in bin `first_bin + i`; bin j spans j * 2^k..(j+1) * 2^k.
        exponent: int64, k.
        first_bin: int64, the bin of the exact minimum.
    """

    counts: Tensor
    exponent: Tensor
    first_bin: Tensor

    def __init__(self, axis: int | None = None, *, non_finite: NonFinite = "error") -> None:
        if axis is not None:
            msg = f"{type(self).__name__} keeps one histogram for a tensor, none per channel of axis {axis}"
            raise ValueError(msg)
        super().__init__(axis, non_finite=non_finite)
        self.register_buffer("counts", torch.zeros(NUM_BINS, dtype=torch.int64))
        self.register_buffer("exponent", torch.tensor(MIN_EXPONENT))
        self.register_buffer("first_bin", torch.tensor(0))

    def bins(self) -> tuple[Tensor, Tensor]:
        """Return the edges of the occupied span of bins and the counts between them.

        Returns:
            edges: float64 `(n + 1,)`, exact; the outer ones reach past the exact minimum and maximum.
            counts: int64 `(n,)`; the first and the last are above 0.
        """
        first, k = int(self.first_bin), int(self.exponent)
        counts = self.counts[: _bin(float(self.high), k) - first + 1]
        edges = torch.arange(first, first + counts.numel() + 1, dtype=torch.float64, device=counts.device)
        return edges * ldexp(1.0, k), counts

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the state with only the occupied span of the counts, as uint32 where they fit: at most 8 KiB."""
        arrays = super().to_arrays()
        counts = self.bins()[1].cpu().numpy() if int(self.num_batches) else arrays["counts"][:0]
        fits = counts.size == 0 or counts.max() <= np.iinfo(np.uint32).max
        return arrays | {"counts": counts.astype(np.uint32 if fits else np.int64)}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace the state by that of `to_arrays`, bit for bit."""
        full = dict(arrays)
        if "counts" in full:
            full["counts"] = check_histogram(full["counts"], NUM_BINS)
        super().load_arrays(full)

    def _observe(self, values: Tensor, low: Tensor, high: Tensor) -> None:
        self._reach(min(float(low), float(self.low)), max(float(high), float(self.high)))
        k, first = int(self.exponent), int(self.first_bin)
        for chunk in values.split(CHUNK):
            # Scaling by a power of two is exact, but where k > 0 a denormal float32 could vanish, and with it its
            # sign: those few tensors are counted in float64.
            wide = chunk.float() if k <= 0 else chunk.double()
            offsets = wide.mul(ldexp(1.0, -k)).floor_().sub_(first)
            self.counts += torch.bincount(offsets.to(torch.int16), minlength=NUM_BINS)

    def _absorb(self, other: Self) -> None:
        self._reach(min(float(other.low), float(self.low)), max(float(other.high), float(self.high)))
        self._add(other.counts, int(other.first_bin), int(other.exponent))

    def _reach(self, low: float, high: float) -> None:
        """Make room for the range low..high, which holds all that was counted."""
        k = _smallest_exponent(low, high)
        counts, first, old_k = self.counts.clone(), int(self.first_bin), int(self.exponent)
        if (k, _bin(low, k)) == (old_k, first):
            return
        self.exponent.fill_(k)
        self.first_bin.fill_(_bin(low, k))
        self.counts.zero_()
        self._add(counts, first, old_k)

    def _add(self, counts: Tensor, first: int, k: int) -> None:
        """Add counts of bins that are as wide as our own, or narrower."""
        occupied = counts.nonzero().flatten()
        # An arithmetic shift is the division by 2^growth rounded down; 62 shifts turn every bin into 0 or -1.
        growth = min(int(self.exponent) - k, 62)
        self.counts.index_add_(0, ((occupied + first) >> growth) - self.first_bin, counts[occupied])


def _bin(x: float, k: int) -> int:
    return floor(ldexp(x, -k))


def _smallest_exponent(low: float, high: float) -> int:
    """Return the smallest k for which low..high fits; it never shrinks when the range grows."""
    k = max(MIN_EXPONENT, frexp(max(-low, high))[1] - MANTISSA_BITS)
    # 2^(e-1) <= width < 2^e: fewer than e - 12 can not do for 2^11 bins, and e - 10 always does.
    k = max(k, frexp(high - low)[1] - NUM_BINS.bit_length())
    while _bin(high, k) - _bin(low, k) >= NUM_BINS:
        k += 1
    return k
