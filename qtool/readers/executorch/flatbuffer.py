"""Flatbuffers with the standard library alone: every offset is checked, and what is read is counted.

A table begins with the way back to its vtable, which says where each of its fields lies; a field that it leaves out has
its default. Source: https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_PARTS: Final = 350_000
"""Tables, and arguments of calls; a program of 10 000 ops has 250 000. Offsets may lead to one part again and again."""
_MAX_TEXT_BYTES: Final = 4096
_TEXT_BYTES_OF_A_PART: Final = 64
_NUMBERS_OF_A_PART: Final = 16
_FORMS: Final = {form: struct.Struct(f"<{form}") for form in "bBHiIqQ"}
_FIRST_FIELD: Final = 4
"""A vtable begins with two sizes, its own and its table's."""


class Flatbuffer:
    """The bytes of a flatbuffer.

    Attributes:
        data: all of them.
        where: what to call it in messages.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self._num_parts = 0

    def root(self) -> Table:
        """Return its outermost table.

        Raises:
            FileFormatError: an offset leads out of the buffer; so from everything that is read.
        """
        return self.table(self.number("I", 0))

    def number(self, form: str, position: int) -> int:
        """Return the little-endian number at a position; `form` is as `struct` has it."""
        packed = _FORMS[form]
        if not 0 <= position <= len(self.data) - packed.size:
            msg = f"an offset leads to byte {position} of {len(self.data)}"
            raise self.damaged(msg)
        found: int = packed.unpack_from(self.data, position)[0]
        return found

    def table(self, position: int) -> Table:
        """Return the table at a position."""
        self.count(1)
        vtable = position - self.number("i", position)
        vtable_bytes, table_bytes = self.number("H", vtable), self.number("H", vtable + 2)
        if vtable_bytes < _FIRST_FIELD or vtable + vtable_bytes > len(self.data):
            msg = f"the table at byte {position} has no fields that can be"
            raise self.damaged(msg)
        if position + table_bytes > len(self.data):
            msg = f"the table at byte {position} reaches past its end"
            raise self.damaged(msg)
        return Table(self, position, vtable, vtable_bytes, table_bytes)

    def count(self, num_parts: int) -> None:
        """Count parts that are read, so that a file cannot keep its reader busy."""
        self._num_parts += num_parts
        if self._num_parts > _MAX_PARTS:
            msg = f"it has more than {_MAX_PARTS} parts"
            raise self.damaged(msg)

    def damaged(self, what: str) -> FileFormatError:
        """Return the error to raise for a part that cannot be."""
        return FileFormatError(f"{self.where}: it looks like an ExecuTorch program, but {what}; get it again")


@dataclass(slots=True)
class Table:
    """One table; fields are numbered from 0 in the order of the schema, a union takes two."""

    buffer: Flatbuffer
    position: int
    vtable: int
    vtable_bytes: int
    table_bytes: int

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 where it is left out."""
        place = self._place(field)
        return 0 if place is None else self.buffer.number(form, place)

    def decimal(self, field: int) -> float:
        """Return a float64, 0 where it is left out."""
        place = self._place(field)
        if place is None or place + 8 > len(self.buffer.data):
            return 0.0
        found: float = struct.unpack_from("<d", self.buffer.data, place)[0]
        return found

    def table(self, field: int) -> Table | None:
        """Return a table, None where it is left out."""
        place = self._place(field)
        return None if place is None else self.buffer.table(place + self.buffer.number("I", place))

    def tables(self, field: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        start, length = self._vector(field, 4)
        for position in range(start, start + 4 * length, 4):
            yield self.buffer.table(position + self.buffer.number("I", position))

    def numbers(self, field: int, form: str) -> tuple[int, ...]:
        """Return a vector of numbers."""
        start, length = self._vector(field, _FORMS[form].size)
        self.buffer.count(length // _NUMBERS_OF_A_PART)
        return struct.unpack_from(f"<{length}{form}", self.buffer.data, start)

    def text(self, field: int) -> str:
        """Return a text, cut to 4096 bytes; what is not UTF-8 is replaced."""
        start, length = self._vector(field, 1)
        length = min(length, _MAX_TEXT_BYTES)
        self.buffer.count(length // _TEXT_BYTES_OF_A_PART)
        return self.buffer.data[start : start + length].decode("utf-8", "replace")

    def span(self, field: int) -> tuple[int, int]:
        """Return where the bytes of a vector begin, and how many there are."""
        return self._vector(field, 1)

    def _vector(self, field: int, element_bytes: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, and how many there are."""
        place = self._place(field)
        if place is None:
            return 0, 0
        start = place + self.buffer.number("I", place)
        length = self.buffer.number("I", start)
        if start + 4 + length * element_bytes > len(self.buffer.data):
            msg = f"a vector of {length} elements reaches past its end"
            raise self.buffer.damaged(msg)
        return start + 4, length

    def _place(self, field: int) -> int | None:
        """Return where a field lies, None where the table leaves it out."""
        entry = _FIRST_FIELD + 2 * field
        if entry + 2 > self.vtable_bytes:
            return None
        offset = self.buffer.number("H", self.vtable + entry)
        if offset >= self.table_bytes and offset:
            msg = f"a field of the table at byte {self.position} lies outside of it"
            raise self.buffer.damaged(msg)
        return self.position + offset if offset else None
