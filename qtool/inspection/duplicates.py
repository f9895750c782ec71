"""Finds tensors whose bytes a file stores more than once; only those that could be equal are read."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.inspection.findings import Duplicate

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from qtool.inspection.meter import Meter
    from qtool.readers.facts import Place, Tensor

_SMALLEST: Final = 1024
"""Bytes below which equal tensors say nothing: zero points and biases that are all 0."""

_HEAD: Final = 4096
_WIDEST: Final = 8
"""Bytes of the widest number: after so many, a tensor of one value repeats itself."""


def duplicates(tensors: Iterable[Tensor], meter: Meter) -> tuple[Duplicate, ...]:
    """Return the tensors that are stored more than once, those that waste most first.

    Tensors that share their bytes are stored once. Two of equal size are compared by their first bytes, and by a
    digest of all only where these are equal. Those that repeat one value, as zero points of 0 do, are no loss.

    Args:
        tensors: all that the file stores.
        meter: the open file.
    """
    names: dict[Place, list[str]] = {}
    for tensor in tensors:
        if tensor.place is not None and tensor.place.num_bytes >= _SMALLEST:
            names.setdefault(tensor.place, []).append(tensor.name)
    equal: list[list[Place]] = [list(names)]
    for key in (_size, _head(meter), _digest(meter)):
        equal = [group for places in equal for group in _grouped(places, key) if len(group) > 1]
    found = [_duplicate(places, names) for places in equal]
    return tuple(sorted(found, key=lambda each: -each.wasted_bytes))


def _grouped(places: Iterable[Place], key: Callable[[Place], Hashable]) -> Iterable[list[Place]]:
    groups: dict[Hashable, list[Place]] = {}
    for place in places:
        groups.setdefault(key(place), []).append(place)
    return groups.values()


def _size(place: Place) -> int:
    return place.num_bytes


def _head(meter: Meter) -> Callable[[Place], Hashable]:
    def head(place: Place) -> Hashable:
        part = dataclasses.replace(place, num_bytes=min(_HEAD, place.num_bytes))
        try:
            blocks = meter.blocks(part)
            return place if blocks is None else b"".join(blocks)
        except FileFormatError as error:
            meter.remember(str(error))
            return place

    return head


def _digest(meter: Meter) -> Callable[[Place], Hashable]:
    def digest(place: Place) -> Hashable:
        blocks, total, is_one_value = meter.blocks(place), hashlib.sha256(), True
        try:
            for block in blocks or ():
                total.update(block)
                is_one_value = is_one_value and block[:-_WIDEST] == block[_WIDEST:]
        except FileFormatError as error:
            meter.remember(str(error))
            return place
        # What repeats one value, or was not read, counts as equal to nothing else.
        return place if is_one_value else total.digest()

    return digest


def _duplicate(places: list[Place], names: dict[Place, list[str]]) -> Duplicate:
    num_bytes = places[0].num_bytes
    return Duplicate(
        names=tuple(name for place in places for name in names[place]),
        num_bytes=num_bytes,
        wasted_bytes=num_bytes * (len(places) - 1),
    )
