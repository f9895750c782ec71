"""Where an ExecuTorch program keeps its data: constants, delegates' blobs and blobs by name, in segments behind it.

Source: executorch/schema/program.fbs and extended_header.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import BITS, Place, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.errors import FileFormatError
    from qtool.readers.executorch.flatbuffer import Table

SCALAR_TYPES: Final = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool",
    12: "int8", 13: "uint8", 14: "int32", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
    25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
"""By the numbers of c10, which are not those of torch.export. Source: executorch/schema/scalar_type.fbs."""

_CONSTANT_BUFFER, _DELEGATE_DATA, _SEGMENTS, _CONSTANTS, _MUTABLE, _NAMED = 2, 3, 4, 5, 6, 7
"""Fields of a Program."""
_SCALAR, _SIZES, _ORDER, _BUFFER, _ALLOCATION, _EXTRA = 0, 2, 3, 5, 6, 9
"""Fields of a Tensor."""
_EXTERNAL: Final = 1
_MAX_DIMENSIONS: Final = 64
_MAX_SHOWN: Final = 80


@dataclass(frozen=True)
class Storage:
    """The places of a program's data.

    Attributes:
        num_bytes: size of the file.
        segments: where each segment lies.
        inline: constants inside the program, as older files have them.
        constants: segment of the constants, and where each begins in it; the first stands for none.
        mutable: the same of tensors that change, for each of their segments.
        delegates: blobs of delegates inside the program.
        program: for its errors.
    """

    num_bytes: int
    segments: tuple[Place, ...]
    inline: tuple[Place, ...]
    constants: tuple[int, tuple[int, ...]]
    mutable: tuple[tuple[int, tuple[int, ...]], ...]
    delegates: tuple[Place, ...]
    program: Table

    @staticmethod
    def of(program: Table, *, first_segment: int, num_bytes: int) -> Storage:
        """Return where the data of a program lie.

        Args:
            program: the root.
            first_segment: byte of the file that segments are counted from.
            num_bytes: size of the file.

        Raises:
            FileFormatError: a segment does not lie in the file.
        """
        segments = []
        for each in program.tables(_SEGMENTS):
            place = Place(part="", offset=first_segment + each.number(0, "Q"), num_bytes=each.number(1, "Q"))
            if place.offset + place.num_bytes > num_bytes:
                end = place.offset + place.num_bytes
                msg = f"a segment reaches to byte {end}, and the file has {num_bytes}"
                raise program.buffer.damaged(msg)
            segments.append(place)
        constants = program.table(_CONSTANTS)
        return Storage(
            num_bytes,
            tuple(segments),
            tuple(_inline(program, _CONSTANT_BUFFER)),
            (0, ()) if constants is None else _offsets(constants),
            tuple(_offsets(each) for each in program.tables(_MUTABLE)),
            tuple(_inline(program, _DELEGATE_DATA)),
            program,
        )

    def blobs(self) -> Iterator[Tensor]:
        """Yield what is stored by name, whose form only a delegate knows."""
        for each in self.program.tables(_NAMED):
            yield blob(each.text(0) or "blob", self.segment(each.number(1, "I")))

    def segment(self, index: int) -> Place:
        """Return a segment.

        Raises:
            FileFormatError: there is none of that number.
        """
        if index >= len(self.segments):
            msg = f"segment {index} is asked for, and there are {len(self.segments)}"
            raise self.damaged(msg)
        return self.segments[index]

    def delegate(self, reference: Table | None) -> Place | None:
        """Return where the blob of a delegate lies, None where it has none."""
        if reference is None:
            return None
        index = reference.number(1, "I")
        if reference.number(0, "b"):
            return self.segment(index)
        return self.delegates[index] if index < len(self.delegates) else None

    def tensor(self, value: Table, name: str) -> Tensor | None:
        """Return a tensor that is stored; None of one that is computed, or given from outside.

        Raises:
            FileFormatError: it does not lie in its segment.
        """
        index, extra = value.number(_BUFFER, "I"), value.table(_EXTRA)
        said = "" if extra is None else extra.text(1)
        is_external = extra is not None and extra.number(2, "b") == _EXTERNAL
        if not index and not is_external:
            return None
        word = value.number(_SCALAR, "b")
        dtype, shape = SCALAR_TYPES.get(word, f"scalar type {word}"), self._shape(value)
        num_bytes = (math.prod(shape) * BITS.get(dtype, 0) + 7) // 8
        room = None if is_external else self._room(value, index, extra)
        if room is not None and num_bytes > room.num_bytes:
            msg = f"tensor {said[:_MAX_SHOWN] or name!r} of shape {list(shape)} needs more bytes than it has"
            raise self.damaged(msg)
        place = None if room is None else Place(part="", offset=room.offset, num_bytes=num_bytes)
        strides = _strides(shape, value.numbers(_ORDER, "B"))
        return Tensor(name=said or name, dtype=dtype, shape=shape, place=place, strides=strides)

    def _shape(self, value: Table) -> tuple[int, ...]:
        shape = value.numbers(_SIZES, "i")
        if len(shape) > _MAX_DIMENSIONS or any(size < 0 for size in shape):
            msg = f"a tensor has the sizes {list(shape[:4])}..."
            raise self.damaged(msg)
        return shape

    def _room(self, value: Table, index: int, extra: Table | None) -> Place:
        """Return the bytes from a tensor's first one to the end of what holds it."""
        if value.table(_ALLOCATION) is None and self.inline:
            if index >= len(self.inline):
                msg = f"constant {index} is asked for, and there are {len(self.inline)}"
                raise self.damaged(msg)
            return self.inline[index]
        segment, offsets = self.constants
        if value.table(_ALLOCATION) is not None:
            number = 0 if extra is None else extra.number(0, "Q")
            segment, offsets = self.mutable[number] if number < len(self.mutable) else (0, ())
        if index >= len(offsets):
            msg = f"constant {index} is asked for, and there are {len(offsets)}"
            raise self.damaged(msg)
        place, offset = self.segment(segment), offsets[index]
        if offset > place.num_bytes:
            msg = f"constant {index} begins behind the end of its segment"
            raise self.damaged(msg)
        return Place(part="", offset=place.offset + offset, num_bytes=place.num_bytes - offset)

    def damaged(self, what: str) -> FileFormatError:
        """Return the error to raise for a part that cannot be."""
        return self.program.buffer.damaged(what)


def blob(name: str, place: Place) -> Tensor:
    """Return bytes of which only their number is known."""
    return Tensor(name=name, dtype="other", shape=(), place=place)


def _inline(program: Table, field: int) -> Iterator[Place]:
    for each in program.tables(field):
        start, length = each.span(0)
        yield Place(part="", offset=start, num_bytes=length)


def _offsets(table: Table) -> tuple[int, tuple[int, ...]]:
    return table.number(0, "I"), table.numbers(1, "Q")


def _strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides of dimensions that lie in that order, outermost first; None for C order.

    Example:
        >>> _strides((1, 3, 2, 2), (0, 2, 3, 1))
        (12, 1, 6, 3)
    """
    if list(order) == list(range(len(shape))) or sorted(order) != list(range(len(shape))):
        return None
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
