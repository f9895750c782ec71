"""Sums that do not depend on the number of threads."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 4096
"""Elements added in one go. ATen cuts no sum of fewer than 32768 (at::internal::GRAIN_SIZE) among threads, and one with
several results it cuts between these."""


def ordered_sum(rows: Tensor) -> Tensor:
    """Return the sum of each row, taken in float64 in an order that follows from its length alone.

    Args:
        rows: floating `(C, n)`; n may be 0.

    Returns:
        float64 `(C,)`.

    Example:
        >>> ordered_sum(torch.tensor([[1.0, 2.0], [3.0, -3.0]]))
        tensor([3., 0.], dtype=torch.float64)
    """
    while rows.shape[1] > BLOCK:
        num_blocks = -(-rows.shape[1] // BLOCK)
        rows = pad(rows, (0, num_blocks * BLOCK - rows.shape[1])).view(rows.shape[0], num_blocks, BLOCK)
        rows = rows.sum(dim=2, dtype=torch.float64)
    return rows.sum(dim=1, dtype=torch.float64)
