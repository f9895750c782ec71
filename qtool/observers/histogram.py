"""The range whose codes keep the most of the shape of the histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.qparams import qparams_for
from qtool.observers.binned import BinnedObserver
from qtool.observers.clipping import search_range

if TYPE_CHECKING:
    from qtool.numerics.qparams import QParams
    from qtool.types import Spec

SMOOTHING = 1e-4
"""Values credited to a bin that holds clamped values and no others, where the divergence would be infinite.
Source: `eps` of `_smooth_distribution` in MXNet, python/mxnet/contrib/quantization.py."""


class HistogramObserver(BinnedObserver):
    """Loses the least information: the "entropy" calibration, for activations.

    For every candidate range the histogram is compared with itself after quantization, by the Kullback-Leibler
    divergence. What is clamped counts by how much of the data it is, and not by how far it lies outside as with
    `mse`: the tails of normal data are kept for longer, long thin ones are cut sooner.

    Source: Migacz 2017, 8-bit inference with TensorRT, slides 28-36.

    Example:
        >>> observer = HistogramObserver()
        >>> observer.update(torch.randn(1_000_000, generator=torch.manual_seed(0)))
        >>> [round(float(end), 1) for end in observer.clipped_range(uint8)]
        [-4.8, 4.7]
    """

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the ends of the best range for the codes of `spec`, float64."""
        edges, counts = self.histogram()

        # With fewer bins than codes every bin keeps its own code: nothing is lost, and nothing is said.
        narrowest = (spec.num_steps + 1) * (edges[1] - edges[0])

        def criterion(low: Tensor, high: Tensor) -> Tensor:
            errors = torch.full_like(low, torch.inf)
            told = high - low >= narrowest
            errors[told] = divergence(edges, counts, qparams_for(low[told], high[told], spec), spec)
            return errors

        low, high = search_range(
            self.low.double().view(1), self.high.double().view(1), criterion, symmetric=spec.symmetric
        )
        return low[0], high[0]


def divergence(edges: Tensor, counts: Tensor, qparams: QParams, spec: Spec) -> Tensor:
    """Return the Kullback-Leibler divergence D(P || Q) of the histogram from itself quantized, for M candidates.

    P holds the bins inside the range, with the clamped values piled on its outermost bins. Q holds the same bins
    without the clamped values, where those of one code share their values evenly: all that the codes still say.
    The bin of zero is left out of both, for zero is exact in every range, however many zeros there are.

    Args:
        edges: float64 `(B + 1,)`, evenly spaced.
        counts: int64 `(B,)`.
        qparams: scale and zero point, `(M,)` each.
        spec: the range of the codes.

    Returns:
        float64 `(M,)`, not negative.
    """
    scale, zero_point = (part.double().unsqueeze(1) for part in qparams)
    counts = counts.double() * ~((edges[:-1] <= 0.0) & (edges[1:] > 0.0))
    total = counts.sum().clamp(min=1.0)

    # The bins of a code are neighbours, so every sum over them is a difference of running sums.
    centers = (edges[:-1] + edges[1:]) / 2.0
    borders = torch.arange(spec.qmin, spec.qmax + 2, dtype=torch.float64, device=counts.device) - 0.5
    bounds = torch.searchsorted(centers, (borders - zero_point) * scale)
    running = _running_sum(counts)
    mass = running[bounds].diff(dim=1)
    share = mass / _running_sum((counts > 0.0).double())[bounds].diff(dim=1).clamp(min=1.0)

    # Both sums are kept times the total: P log P and P log Q, first of the bins as they are.
    p_log_p = _running_sum(torch.xlogy(counts, counts))[bounds].diff(dim=1).sum(1)
    p_log_q = torch.xlogy(mass, share).sum(1)
    kept = mass.sum(1)
    piles = running[bounds[:, 0]], running[-1] - running[bounds[:, -1]]
    outermost = bounds[:, 0].clamp(max=counts.numel() - 1), (bounds[:, -1] - 1).clamp(min=0)
    for pile, own, share_there in zip(piles, counts[torch.stack(outermost)], (share[:, 0], share[:, -1]), strict=True):
        p_log_p += torch.xlogy(own + pile, own + pile) - torch.xlogy(own, own)
        p_log_q += torch.xlogy(pile, share_there.where(own > 0.0, SMOOTHING))
        kept += SMOOTHING * ((pile > 0.0) & (own == 0.0))
    return (p_log_p - p_log_q) / total + torch.log(kept.clamp(min=SMOOTHING) / total)


def _running_sum(row: Tensor) -> Tensor:
    return torch.cat([row.new_zeros(1), row.cumsum(0)])
