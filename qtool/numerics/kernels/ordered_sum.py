"""Sums in float64 whose order of additions is defined, so that two implementations agree on every bit.

Sixteen neighbours are added one after the other, starting from 0; then sixteen of these sums; and so on. What is
missing at the end is 0. Native code follows it with one running sum a level, threads may begin at any multiple of 16,
and here it takes sixteen calls a level. The error is that of a sum in blocks: a few units in the last place of float64.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

FAN_IN = 16
"""Neighbours in a sum, and lanes of a plane: enough vector registers of float64 to hide the latency of an addition."""


def channel_sums(x: Tensor) -> Tensor:
    """Return the sum of each channel.

    In rows the sum runs down the rows. A plane is cut into rows of sixteen lanes: they are summed down, the lanes are
    folded by halves, and the planes of a channel are summed over the batch.

    Args:
        x: float64, rows `(R, C)` or planes `(N, C, S)`; any of them may be 0.

    Returns:
        float64 `(C,)`.
    """
    if x.dim() == 2:
        return _sum_of_first(x)
    lanes = pad(x, (0, -x.shape[2] % FAN_IN)).unflatten(2, (-1, FAN_IN)).permute(2, 0, 1, 3)
    lanes = _sum_of_first(lanes)
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half:]
    return _sum_of_first(lanes.squeeze(-1))


def _sum_of_first(x: Tensor) -> Tensor:
    """Return the sum over dimension 0."""
    while x.shape[0] > 1:
        groups = pad(x, (0, 0) * (x.dim() - 1) + (0, -x.shape[0] % FAN_IN)).unflatten(0, (-1, FAN_IN))
        x = torch.zeros_like(groups[:, 0])
        for neighbour in range(FAN_IN):
            x = x + groups[:, neighbour]
    return x[0] if len(x) else x.new_zeros(x.shape[1:])
