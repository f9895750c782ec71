"""Compares what two files store: weights byte by byte, scales and zero points number by number; no torch, no numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from qtool.readers.facts import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.facts import ModelFacts, Operand
    from qtool.readers.source import OpenModel

Key = tuple[str, str]
"""A node and one of its tensors by role, `input`, `input 2`, `weight` ...; or an empty word and a tensor's name."""

Numbers = Tensor | tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True)
class StoredNumbers:
    """What two files store differently.

    Attributes:
        different: (node, what) of what both have and is not the same, for example `("conv1", "weight values")`; the
            node is empty for a tensor of no node.
        unknown: likewise, what one of them does not store as plain bytes.
        num_same: how many were compared and are the same.
    """

    different: tuple[Key, ...] = ()
    unknown: tuple[Key, ...] = ()
    num_same: int = 0


def compared_numbers(first: OpenModel, second: OpenModel) -> StoredNumbers:
    """Return what two open files store differently, of all that both have: names, roles, dtypes and shapes agree.

    Raises:
        FileFormatError: bytes of a tensor are not there.
    """
    different, unknown, num_same = [], [], 0
    for key, one, other in _pairs(first.facts.model, second.facts.model):
        same = _is_same(one, other, first, second)
        num_same += same is True
        if same is None:
            unknown.append(key)
        elif not same:
            different.append(key)
    return StoredNumbers(different=tuple(different), unknown=tuple(unknown), num_same=num_same)


def _pairs(first: ModelFacts, second: ModelFacts) -> Iterator[tuple[Key, Numbers, Numbers]]:
    """Yield what stands for the same thing in both files."""
    ours, theirs = _operands(first), _operands(second)
    shown = set()
    for key in [key for key in ours if key in theirs]:
        one, other = ours[key], theirs[key]
        if _is_alike(one.tensor, other.tensor):
            shown |= {id(one.tensor)}
            yield (key[0], f"{key[1]} values"), one.tensor, other.tensor
        if one.quantization and other.quantization:
            yield (key[0], f"{key[1]} scales"), one.quantization.scale, other.quantization.scale
            yield (key[0], f"{key[1]} zero points"), one.quantization.zero_point, other.quantization.zero_point
    named = {tensor.name: tensor for tensor in second.tensors}
    for tensor in first.tensors:
        twin = named.get(tensor.name)
        if id(tensor) not in shown and _is_alike(tensor, twin):
            yield ("", tensor.name), tensor, twin


def _operands(model: ModelFacts) -> Mapping[Key, Operand]:
    found: dict[Key, Operand] = {}
    for node in model.nodes:
        counts: dict[str, int] = {}
        for operand in node.operands:
            counts[operand.role] = counts.get(operand.role, 0) + 1
            nth = "" if counts[operand.role] == 1 else f" {counts[operand.role]}"
            found.setdefault((node.name, f"{operand.role.value}{nth}"), operand)
    return found


def _is_alike(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and (one.dtype, one.shape) == (other.dtype, other.shape)


def _is_same(one: Numbers, other: Numbers, first: OpenModel, second: OpenModel) -> bool | None:
    """Return whether numbers are the same; None where that cannot be told."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if not _is_alike(one, other):
            return False
        if one.place is None or other.place is None or one.strides != other.strides:
            return None
        return _is_same_stream(first.blocks(one.place), second.blocks(other.place))
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return None
    # repr: NaN is the same as NaN, and -0.0 is not 0.0.
    return repr(one) == repr(other)


def _is_same_stream(one: Iterator[bytes], other: Iterator[bytes]) -> bool:
    """Return whether two streams hold the same bytes, however they are cut."""
    ours, theirs = memoryview(b""), memoryview(b"")
    for block, twin in zip_longest(one, other, fillvalue=b""):
        ours, theirs = memoryview(bytes(ours) + block), memoryview(bytes(theirs) + twin)
        length = min(len(ours), len(theirs))
        if ours[:length] != theirs[:length]:
            return False
        ours, theirs = ours[length:], theirs[length:]
    return not ours and not theirs
