"""The order in which a tensor's elements lie in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def memory_order(x: Tensor) -> list[int]:
    """Return the dimensions of `x` from the one with the largest stride to the one with the smallest.

    `x.permute(memory_order(x))` is contiguous for every dense tensor, so flattening it copies nothing.

    Example:
        >>> memory_order(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last))
        [0, 2, 3, 1]
    """
    order: list[int] = []
    for dim in range(x.dim()):  # torch.compile cannot trace `sorted` where the strides are symbols
        order.insert(len([other for other in order if x.stride(other) >= x.stride(dim)]), dim)
    return order


def flatten_as_stored(x: Tensor) -> Tensor:
    """Return the elements of `x` as one row in memory order; a view when `x` is dense."""
    return x.permute(memory_order(x)).reshape(-1)


def restore_from_stored(flat: Tensor, shape: tuple[int, ...], order: list[int]) -> Tensor:
    """Return the tensor whose `flatten_as_stored` is `flat`, as a view of it.

    Args:
        flat: any dtype, `(prod(shape),)`.
        shape: the shape of the tensor.
        order: `memory_order` of the tensor.
    """
    inverse = [order.index(dim) for dim in range(len(order))]
    return flat.view([shape[dim] for dim in order]).permute(inverse)


def is_dense(x: Tensor) -> bool:
    """Return whether the elements of `x` fill its memory once and without gaps, in whatever order."""
    return x.is_contiguous() or x.permute(memory_order(x)).is_contiguous()


def as_dense(x: Tensor) -> Tensor:
    """Return `x` itself if it is dense, else a dense copy in the order of its strides."""
    return x if is_dense(x) else x.clone()


def laid_out_like(x: Tensor, like: Tensor) -> Tensor:
    """Return `x` in the memory format of the dense tensor `like`, of the same shape: itself, or a copy."""
    if x.stride() == like.stride():
        return x
    return torch.empty_like(like, dtype=x.dtype).copy_(x)
