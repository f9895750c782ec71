"""Engines take batches of two or three spatial dimensions, and linear layers rows; models also call them on less."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def on_images(op: Callable[[Tensor], Tensor], x: Tensor, *, num_dims: int) -> Tensor:
    """Apply an op on (N, C, H, W) or (N, C, D, H, W) to a tensor that may lack the batch, or the height.

    Args:
        op: takes and returns (N, C, H, W); with three dimensions (N, C, D, H, W).
        x: (N, C, *spatial) or (C, *spatial).
        num_dims: number of spatial dimensions of `x`; a single one becomes the last of two.

    Returns:
        What `op` gives, with the dimensions that `x` has.
    """
    image = x.unsqueeze(-2) if num_dims == 1 else x
    has_batch = x.dim() == num_dims + 2
    y = op(image) if has_batch else op(image.unsqueeze(0)).squeeze(0)
    return y.squeeze(-2) if num_dims == 1 else y


def on_rows(op: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply an op on (..., I) with at least two dimensions to a tensor that may be a single row, (I,)."""
    return op(x) if x.dim() > 1 else op(x.unsqueeze(0)).squeeze(0)
