"""Which bins a histogram has: a function of the exact range of its data, and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, frexp, ldexp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

MAX_BINS = 2048
"""Data spans more than half as many bins, so one of 256 codes is 4 to 8 bins wide.
Chosen: as many as torch.ao's HistogramObserver has; what the estimates are worth is in docs/numerics.md."""

MIN_EXPONENT = -75
"""Smallest exponent: bins 2^-12 of the smallest scale, 2^-63; finer ones could not matter."""

MANTISSA_BITS = 23
"""Bins are never finer than float32 is at the end of the range, so the number of a bin is exact in float32."""


@dataclass(frozen=True)
class Bins:
    """Bins of width 2^exponent: number j holds the values from j * 2^exponent up to below (j + 1) * 2^exponent.

    Attributes:
        exponent: signed.
        first: number of the bin of the minimum, signed.
        last: number of the bin of the maximum; fewer than MAX_BINS above `first`.
    """

    exponent: int
    first: int
    last: int

    @classmethod
    def of_range(cls, low: float, high: float) -> Self:
        """Return the narrowest bins that hold low..high; a wider range never has narrower ones.

        Example:
            >>> Bins.of_range(-1.0, 2.0)
            Bins(exponent=-9, first=-512, last=1024)
        """
        exponent = max(MIN_EXPONENT, _log2_above(max(-low, high)) - MANTISSA_BITS)
        # 2^(e-1) <= high - low < 2^e leaves e - 11 or e - 10 for 2^11 bins; start one below, the test is exact.
        exponent = max(exponent, _log2_above(high - low) - MAX_BINS.bit_length())
        while _number(high, exponent) - _number(low, exponent) >= MAX_BINS:
            exponent += 1
        return cls(exponent, _number(low, exponent), _number(high, exponent))

    @property
    def width(self) -> float:
        """Width of a bin."""
        return ldexp(1.0, self.exponent)

    @property
    def count(self) -> int:
        """Number of bins, 1..MAX_BINS."""
        return self.last - self.first + 1


def _number(x: float, exponent: int) -> int:
    return floor(ldexp(x, -exponent))


def _log2_above(x: float) -> int:
    """Return the smallest e with x < 2^e."""
    return frexp(x)[1] if x > 0.0 else MIN_EXPONENT
