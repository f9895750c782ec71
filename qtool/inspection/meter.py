"""Bounds what measuring a file may read: tensors of a hostile one can overlap, and lie deep in compressed entries.

What cannot be read is remembered and told; the rest of the file is measured all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.facts import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.facts import Place
    from qtool.readers.source import OpenModel

_PLAIN: Final = frozenset({FileKind.ONNX, FileKind.SAFETENSORS, FileKind.EXECUTORCH, FileKind.PICKLE})
"""Formats that are no archives: every byte is as near as any other."""

_SPENT: Final = "some tensors, which overlap or lie deep in compressed entries: to measure all would take too long"
_TIMES: Final = 3
_MORE_BYTES: Final = 1 << 26


class Meter:
    """Reads the bytes of an open model, and no more than some times what its tensors take.

    Attributes:
        histograms: values and scales are to be counted for histograms too.
    """

    def __init__(self, model: OpenModel, *, histograms: bool = True) -> None:
        self.histograms = histograms
        self._model = model
        self._is_archive = model.facts.kind not in _PLAIN
        places = {tensor.place for tensor in model.facts.model.tensors if tensor.place is not None}
        self._left = _TIMES * _covered_bytes(places) + _MORE_BYTES
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why something was not read."""
        return tuple(self._problems)

    def remember(self, problem: str) -> None:
        """Add a reason why something was not read."""
        self._problems[problem] = None

    def blocks(self, place: Place) -> Iterator[bytes] | None:
        """Return the bytes at a place, piece by piece; None where enough was read.

        Raises:
            FileFormatError: while they are read: they are not there.
        """
        # A compressed entry is unpacked from its beginning.
        self._left -= place.num_bytes + (place.offset if self._is_archive else 0)
        if self._left < 0:
            self.remember(_SPENT)
            return None
        return self._model.blocks(place)


def _covered_bytes(places: set[Place]) -> int:
    """Return how many bytes lie in at least one of the places."""
    total, part, end = 0, "", 0
    for place in sorted(places, key=lambda each: (each.part, each.offset)):
        if place.part != part:
            part, end = place.part, 0
        total += max(0, place.offset + place.num_bytes - max(end, place.offset))
        end = max(end, place.offset + place.num_bytes)
    return total
