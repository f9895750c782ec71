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
    centers = (edges[:-1] + edges[1:]) / 2.0
    num_codes = spec.qmax - spec.qmin + 1
    counts = counts.double() * ~((edges[:-1] <= 0.0) & (edges[1:] > 0.0))

    steps = (centers / scale).round_().add_(zero_point - spec.qmin)
    code = steps.clamp(0, num_codes - 1)
    inside = code == steps
    kept = counts * inside
    reference = kept.clone()
    ends = inside.double()
    first, last = ends.argmax(1, keepdim=True), inside.shape[1] - 1 - ends.flip(1).argmax(1, keepdim=True)
    reference.scatter_add_(1, first, (counts * (steps < 0)).sum(1, keepdim=True))
    reference.scatter_add_(1, last, (counts * (steps >= num_codes)).sum(1, keepdim=True))

    index, occupied = code.long(), (kept > 0).double()
    per_code = kept.new_zeros((kept.shape[0], num_codes))
    share = per_code.scatter_add(1, index, kept) / per_code.scatter_add(1, index, occupied).clamp(min=1.0)
    candidate = (share.gather(1, index) * occupied).clamp_(min=SMOOTHING) * (reference > 0)

    p = reference / reference.sum(1, keepdim=True).clamp(min=1.0)
    q = candidate / candidate.sum(1, keepdim=True).clamp(min=SMOOTHING)
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(1)
