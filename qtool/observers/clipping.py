"""The search for the ends of a range at which some error is smallest.

Shapes: C channels are searched side by side, each for itself; M candidates are tried at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Criterion = Callable[[Tensor, Tensor], Tensor]
"""Takes the ends of candidate ranges, float64 `(M, C)` each, and returns their errors, float64 `(M, C)`."""

NUM_COARSE = 64
SMALLEST_SHARE = 2.0**-8
"""Coarse candidates keep all down to 1/256 of an end, in 64 geometric steps of 8.4 %.
Chosen: with one outlier among 1e8 normal values the best end is at about 1/100 of it."""

NUM_FINE = 33
FINE_REACH = 1.088
"""Fine candidates lie around the best coarse one, one coarse step to either side, in steps of 0.5 %."""


def search_range(low: Tensor, high: Tensor, criterion: Criterion, *, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return the ends within low..high at which the criterion is smallest; among equals the wider range.

    Both ends are drawn in together first, then one at a time: with an outlier on either side, cutting only one of
    them gains nothing. Every search keeps what the one before found as a candidate, and the first has the whole
    range, so the result is never worse than that.

    Args:
        low: float64 `(C,)`.
        high: float64 `(C,)`.
        criterion: what to make small.
        symmetric: the range is -amax..amax: both ends stay together.

    Returns:
        The ends, float64 `(C,)` each, with 0 between them.
    """
    if symmetric:
        high = torch.maximum(low.abs(), high.abs())
        low = -high
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    coarse = torch.logspace(0.0, 1.0, NUM_COARSE, base=SMALLEST_SHARE, dtype=torch.float64, device=low.device)
    fine = torch.logspace(1.0, -1.0, NUM_FINE, base=FINE_REACH, dtype=torch.float64, device=low.device)

    def pick(lows: Tensor, highs: Tensor) -> tuple[Tensor, Tensor]:
        lows, highs = torch.broadcast_tensors(lows, highs)
        best = criterion(lows, highs).argmin(dim=0, keepdim=True)  # the first of equals
        return lows.gather(0, best)[0], highs.gather(0, best)[0]

    best_low, best_high = pick(torch.outer(coarse, low), torch.outer(coarse, high))
    if symmetric:
        return pick(torch.outer(fine, best_low).maximum(low), torch.outer(fine, best_high).minimum(high))
    if bool(low.any()) and bool(high.any()):
        best_low, best_high = pick(best_low.unsqueeze(0), torch.outer(coarse, high))
        best_low, best_high = pick(torch.outer(coarse, low), best_high.unsqueeze(0))
    best_low, best_high = pick(best_low.unsqueeze(0), torch.outer(fine, best_high).minimum(high))
    return pick(torch.outer(fine, best_low).maximum(low), best_high.unsqueeze(0))
