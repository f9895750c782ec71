"""Sizes for made-up inputs, where the model leaves them open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qtool.stamp.schema import InputStamp

SIDE = 32
"""Size of a dynamic dimension behind the first: large enough for the windows of most convolutions."""


def example_sizes(stamp: InputStamp, *, batch: int) -> list[int]:
    """Return a size for each dimension: `batch` for a dynamic first one, 32 for other dynamic ones.

    Example:
        `[batch, 3, height, width]` with batch 2 gives [2, 3, 32, 32].
    """
    return [(batch if d == 0 else SIDE) if isinstance(size, str) else size for d, size in enumerate(stamp.shape)]
