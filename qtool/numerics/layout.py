"""The order in which a tensor's elements lie in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def memory_order(x: Tensor) -> list[int]:
    """Return the dimensions of `x` from the one with the largest stride to the one with the smallest.

    `x.permute(memory_order(x))` is contiguous for every dense tensor, so flattening it copies nothing.

    Example:
        >>> memory_order(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last))
        [0, 2, 3, 1]
    """
    return sorted(range(x.dim()), key=x.stride, reverse=True)


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
