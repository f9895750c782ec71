"""A tensor seen as planes (one channel after the other) or as rows (channels beside each other).

Letters: N batch, C channels, S all other positions, R = N * S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def is_rows(x: Tensor) -> bool:
    """Return whether the channels (dimension 1) of a dense `x` lie innermost in memory.

    Example:
        >>> is_rows(torch.empty(2, 3, 4, 5)), is_rows(torch.empty(2, 3))
        (False, True)
    """
    return x.dim() == 2 or (not x.is_contiguous() and _channels_last(x).is_contiguous())


def dense(x: Tensor) -> Tensor:
    """Return `x` itself where it lies as planes or as rows without gaps, else a contiguous copy."""
    return x if _channels_last(x).is_contiguous() else x.contiguous()


def like(grad: Tensor, x: Tensor) -> Tensor:
    """Return `grad` in the memory format of a dense `x`: itself, or a copy."""
    if not is_rows(x):
        return grad.contiguous()
    lies = _channels_last(grad).contiguous()
    return lies.permute(0, -1, *range(1, x.dim() - 1))


def planes_or_rows(x: Tensor) -> Tensor:
    """Return a dense `x` as a view `(R, C)` where its channels lie innermost, else `(N, C, S)`."""
    if is_rows(x):
        return _channels_last(x).reshape(-1, x.shape[1])
    return x.reshape(*x.shape[:2], x.shape[2:].numel() if x.numel() else 0)


def beside(per_channel: Tensor, x: Tensor) -> Tensor:
    """Return a view of `per_channel` `(C,)` that broadcasts over dimension 1 of `x`."""
    return per_channel.view(-1, *[1] * (x.dim() - 2))


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, *range(2, x.dim()), 1)
