"""Steps through protobuf messages in a file: field by field, through a small window, and what is long is stepped over.

A message is a row of fields, each a number with a kind, and either a varint, some bytes, or fixed bits. A message in a
message is bytes. Source: protobuf's encoding, https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.source import Source

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

_WINDOW_BYTES: Final = 1 << 16
_VARINT_BYTES: Final = 10
_ALL_BITS: Final = (1 << 64) - 1
_MAX_TEXT_BYTES: Final = 1 << 16


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: which field of its message.
        kind: VARINT, FIXED64, LENGTH or FIXED32.
        value: of a varint, in 0..2^64-1; else 0.
        start: first of its bytes, counted from the start of the file.
        end: behind its last byte; a varint has none.
    """

    number: int
    kind: int
    value: int
    start: int
    end: int


class Messages:
    """Messages in a file; counts what is looked at, so that no file keeps the reader busy for ever."""

    def __init__(self, source: Source, what: str, max_fields: int) -> None:
        """Read from a file that is said to be `what`, for example `an ONNX file`."""
        self._source = source
        self._what = what
        self._max_fields = max_fields
        self._num_fields = 0
        self._window = b""
        self._window_start = 0
        self._last_start = -1  # a varint may start up to here and be in the window to its end

    def damaged(self) -> FileFormatError:
        """Return the error for bytes that are no such message."""
        msg = f"{self._source.where}: it looks like {self._what}, but is damaged; get it again from its source"
        return FileFormatError(msg)

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message at start..end.

        Raises:
            FileFormatError: it is damaged, or there are too many fields.
        """
        while start < end:
            self._num_fields += 1
            if self._num_fields > self._max_fields:
                raise self._too_many()
            tag, start = self._varint(start, end)
            number, kind = tag >> 3, tag & 7
            value = size = 0
            if kind == LENGTH:
                size, start = self._varint(start, end)
            elif kind == VARINT:
                value, start = self._varint(start, end)
            elif kind == FIXED32:
                size = 4
            elif kind == FIXED64:
                size = 8
            else:
                raise self.damaged()
            if not number or size > end - start:
                raise self.damaged()
            yield Field(number, kind, value, start, start + size)
            start += size

    def varints(self, field: Field) -> list[int]:
        """Return the numbers of a repeated field: the one it holds, or several packed into its bytes."""
        if field.kind == VARINT:
            return [field.value]
        found = []
        start = field.start
        while start < field.end:
            self._num_fields += 1
            if self._num_fields > self._max_fields:
                raise self._too_many()
            value, start = self._varint(start, field.end)
            found.append(value)
        return found

    def bytes_of(self, field: Field) -> bytes:
        """Return the bytes of a field; who calls bounds them."""
        return self._source.read(field.start, field.end - field.start)

    def text(self, field: Field) -> str:
        """Return a text; what is not UTF-8 in it is replaced.

        Raises:
            FileFormatError: it has more than 64 KiB.
        """
        if field.kind != LENGTH or field.end - field.start > _MAX_TEXT_BYTES:
            raise self.damaged()
        return self.head(field, _MAX_TEXT_BYTES).decode("utf-8", "replace")

    def head(self, field: Field, num_bytes: int) -> bytes:
        """Return the first bytes of a field, at most so many."""
        start, end = field.start, min(field.end, field.start + num_bytes)
        if start >= self._window_start and end - self._window_start <= len(self._window):
            return self._window[start - self._window_start : end - self._window_start]
        return self._source.read(start, end - start)

    def _too_many(self) -> FileFormatError:
        msg = f"{self._source.where}: {self._what} of more than {self._max_fields} parts is not read"
        return FileFormatError(msg)

    def _varint(self, start: int, end: int) -> tuple[int, int]:
        """Return a number, and where it ends: seven bits in each byte, the lowest first."""
        if not self._window_start <= start <= self._last_start:
            self._move(start)
        at = start - self._window_start
        if start < end and (byte := self._window[at]) < 0x80:  # most are: `_move` put this byte into the window
            return byte, start + 1
        value = 0
        for shift, byte in enumerate(self._window[at : at + min(_VARINT_BYTES, end - start)]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                return value & _ALL_BITS, start + shift + 1
        raise self.damaged()

    def _move(self, start: int) -> None:
        """Put the window at a place."""
        size = min(_WINDOW_BYTES, self._source.num_bytes - start)
        self._window = self._source.read(start, size)
        self._window_start = start
        is_last = start + size == self._source.num_bytes
        self._last_start = start + size - (1 if is_last else _VARINT_BYTES)


def signed(value: int) -> int:
    """Return a varint as the signed number it stands for.

    Example:
        >>> signed(2**64 - 1)
        -1
    """
    return value - (1 << 64) if value >> 63 else value
