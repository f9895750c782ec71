"""The range of all but the rarest values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qtool.errors import RangeError
from qtool.observers.binned import BinnedObserver

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.observers.base import NonFinite
    from qtool.types import Spec

DEFAULT_PERCENTILE = 99.99
"""Source: Wu et al. 2020, arXiv:2004.09602, table 5: 99.99 and 99.999 are the two that keep accuracy at 8 bits."""


class PercentileObserver(BinnedObserver):
    """Covers the values from the (100 - p)-th to the p-th percentile; what lies outside is clamped.

    Both tails are cut, each by (100 - p) percent of the values. Within a bin values are taken as spread evenly; the
    result never lies outside the exact minimum and maximum.

    Args:
        non_finite: what to do with NaN and infinity.
        percentile: p, above 50 and at most 100; 100 is the exact range.

    Raises:
        RangeError: the percentile is not in 50..100.

    Example:
        >>> observer = PercentileObserver(percentile=90.0)
        >>> observer.update(torch.arange(0.0, 101.0))
        >>> [round(float(end)) for end in observer.clipped_range(uint8)]
        [10, 90]
    """

    def __init__(self, *, non_finite: NonFinite = "error", percentile: float = DEFAULT_PERCENTILE) -> None:
        super().__init__(non_finite=non_finite)
        if not 50.0 < percentile <= 100.0:
            msg = f"percentile is {percentile}: it must lie above 50 and be at most 100"
            raise RangeError(msg)
        self.percentile = percentile

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return both percentiles."""
        return self._quantile(1.0 - self.percentile / 100.0), self._quantile(self.percentile / 100.0)

    def _quantile(self, share: float) -> Tensor:
        edges, counts = self.histogram()
        below = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).double()
        wanted = share * below[-1]
        index = int(torch.searchsorted(below[1:], wanted).clamp(max=counts.numel() - 1))
        within = (wanted - below[index]) / counts[index].clamp(min=1)
        value = edges[index] + within * (edges[index + 1] - edges[index])
        return value.clamp(self.low.double(), self.high.double())
