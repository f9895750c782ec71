"""Checks that a model is called with what it was made for, before an op fails deep inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from qtool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.stamp.schema import InputStamp


def check_inputs(arguments: tuple[Any, ...], inputs: Sequence[InputStamp]) -> None:
    """Check number, dtype and shape of the input tensors.

    Raises:
        UsageError: a tensor does not fit; the message names it, what was given and what is allowed.

    Example:
        For a model stamped `x: float32 [batch, 3, 224, 224]`, a tensor of (5, 3, 224, 224) passes and one of
        (5, 3, 192, 192) gives "input 'x' has shape (5, 3, 192, 192); the model takes (batch, 3, 224, 224)".
    """
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    if len(tensors) != len(inputs):
        msg = f"{len(tensors)} input tensors given; the model takes {len(inputs)}: {', '.join(i.name for i in inputs)}"
        raise UsageError(msg)
    sizes: dict[str, int] = {}
    for tensor, stamp in zip(tensors, inputs, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype != stamp.dtype:
            msg = f"input {stamp.name!r} is {dtype}; the model takes {stamp.dtype}: convert it with .to()"
            raise UsageError(msg)
        if not _fits(tuple(tensor.shape), stamp.shape, sizes):
            allowed = f"({', '.join(map(str, stamp.shape))})"
            msg = f"input {stamp.name!r} has shape {tuple(tensor.shape)}; the model takes {allowed}"
            raise UsageError(msg)


def _fits(shape: tuple[int, ...], stamped: tuple[int | str, ...], sizes: dict[str, int]) -> bool:
    """Compare sizes; a word takes the size it meets first and keeps it."""
    if len(shape) != len(stamped):
        return False
    return all(
        size == (sizes.setdefault(expected, size) if isinstance(expected, str) else expected)
        for size, expected in zip(shape, stamped, strict=True)
    )
