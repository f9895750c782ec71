"""Checks that a model is called with what it was made for, before an op fails deep inside it."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from qtool.errors import NonFiniteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.capture.program import Call
    from qtool.stamp.schema import InputStamp


def check_inputs(
    arguments: tuple[Any, ...], call: Call, inputs: Sequence[InputStamp], *, floating: str = "float32"
) -> None:
    """Check structure and fixed values of the arguments, and number, dtype and shape of the tensors among them.

    Args:
        arguments: what the model is called with.
        call: what it was captured with.
        inputs: name, dtype and shape of each tensor.
        floating: dtype of the inputs that are float32 by their stamp, where the model was cast.

    Raises:
        UsageError: an argument does not fit; the message names it, what was given and what is allowed.

    Example:
        For a model stamped `x: float32 [batch, 3, 224, 224]`, a tensor of (5, 3, 224, 224) passes and one of
        (5, 3, 192, 192) gives "input 'x' has shape (5, 3, 192, 192); the model takes (batch, 3, 224, 224)".
    """
    leaves, structure = pytree.tree_flatten((arguments, {}))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if len(tensors) != len(inputs):
        msg = f"{len(tensors)} input tensors given; the model takes {len(inputs)}: {', '.join(i.name for i in inputs)}"
        raise UsageError(msg)
    if structure != call.structure or not _fixed_values_fit(leaves, call):
        names = [Named(stamp.name) for stamp in inputs]
        given = pytree.tree_unflatten(_with_names(leaves, names), structure)[0]
        msg = f"the model was captured as called with {_shown(call.arrange(names))}; called with {_shown(given)}"
        raise UsageError(msg)
    sizes: dict[str, int] = {}
    for tensor, stamp in zip(tensors, inputs, strict=True):
        _check_tensor(tensor, stamp, sizes, floating)


def check_no_nan(arguments: tuple[Any, ...], inputs: Sequence[InputStamp]) -> None:
    """Refuse NaN in the inputs of a model that computes on codes: no code says NaN, so it would come out as a number.

    Infinity is clamped to the end of the range, as in the fake-quantized model. A finite sum has no NaN in it, and
    takes a tenth of the time that looking at each value does.

    Raises:
        NonFiniteError: an input holds NaN; the message names it and counts them.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    for tensor, stamp in zip(tensors, inputs, strict=True):
        if tensor.is_floating_point() and not isfinite(float(tensor.sum())) and bool(tensor.isnan().any()):
            msg = (
                f"input {stamp.name!r} holds {int(tensor.isnan().sum())} NaN of {tensor.numel()} values, and an int8 "
                f"model has no code for NaN: it would answer as if they were 0. Look for them in the data"
            )
            raise NonFiniteError(msg)


def _check_tensor(tensor: Tensor, stamp: InputStamp, sizes: dict[str, int], floating: str) -> None:
    dtype, wanted = str(tensor.dtype).removeprefix("torch."), floating if stamp.dtype == "float32" else stamp.dtype
    if dtype != wanted:
        msg = f"input {stamp.name!r} is {dtype}; the model takes {wanted}: convert it with .to()"
        raise UsageError(msg)
    if not _fits(tuple(tensor.shape), stamp.shape, sizes):
        allowed = f"({', '.join(map(str, stamp.shape))})"
        msg = f"input {stamp.name!r} has shape {tuple(tensor.shape)}; the model takes {allowed}"
        raise UsageError(msg)


class Named(str):
    """A tensor in a message: its name without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _fixed_values_fit(leaves: list[Any], call: Call) -> bool:
    """Whether each leaf is a tensor where one belongs, and the captured value elsewhere: 1 is not True."""
    return all(
        isinstance(leaf, Tensor) if isinstance(captured, Tensor) else type(leaf) is type(captured) and leaf == captured
        for leaf, captured in zip(leaves, call.leaves, strict=True)
    )


def _with_names(leaves: list[Any], names: list[Named]) -> list[Any]:
    remaining = iter(names)
    return [next(remaining) if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _shown(arguments: tuple[Any, ...]) -> str:
    return f"({', '.join(map(repr, arguments))})"


def _fits(shape: tuple[int, ...], stamped: tuple[int | str, ...], sizes: dict[str, int]) -> bool:
    """Compare sizes; a word takes the size it meets first and keeps it."""
    if len(shape) != len(stamped):
        return False
    return all(
        size == (sizes.setdefault(expected, size) if isinstance(expected, str) else expected)
        for size, expected in zip(shape, stamped, strict=True)
    )
