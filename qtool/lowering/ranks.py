"""Engines take batches of two spatial dimensions, and linear layers rows; models also call them on less."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def on_images(op: Callable[[Tensor], Tensor], x: Tensor, *, is_1d: bool) -> Tensor:
    """Apply an op on (N, C, H, W) to a tensor that may lack the batch, and has one spatial dimension if `is_1d`.

    Args:
        op: takes and returns (N, C, H, W).
        x: (N, C, H, W) or (C, H, W); with `is_1d` (N, C, L) or (C, L).
        is_1d: the one spatial dimension becomes the last of two.

    Returns:
        What `op` gives, with the dimensions that `x` has.
    """
    image = x.unsqueeze(-2) if is_1d else x
    y = op(image) if image.dim() == 4 else op(image.unsqueeze(0)).squeeze(0)
    return y.squeeze(-2) if is_1d else y


def on_rows(op: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply an op on (..., I) with at least two dimensions to a tensor that may be a single row, (I,)."""
    return op(x) if x.dim() > 1 else op(x.unsqueeze(0)).squeeze(0)
