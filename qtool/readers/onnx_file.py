"""Tells an ONNX file from its first bytes, with the standard library alone, so that a message can name it.

Only the numbers and sizes of the outermost fields are read, and the names of the metadata.
Source: ModelProto and StringStringEntryProto in onnx.proto, and the wire format of protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from qtool.readers.source import Source

STAMP_KEY: Final = "qtool.stamp"
"""What `qtool export` stores the stamp under, in the model's `metadata_props`."""

_VARINT, _BYTES = 0, 2
_IR_VERSION, _GRAPH, _METADATA = 1, 7, 14
_WIRE_TYPES: Final = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES,
                      14: _BYTES, 20: _BYTES, 25: _BYTES, 26: _BYTES}  # fmt: skip
"""The fields of a ModelProto, by number."""

_MAX_FIELDS: Final = 1000
_MAX_IR_VERSION: Final = 1000
_STAMP_ENTRY: Final = bytes([0x0A, len(STAMP_KEY)]) + STAMP_KEY.encode()
"""How the metadata entry of that key begins: field 1, its size, and the key."""


def is_onnx(source: Source) -> bool:
    """Return whether a file is an ONNX model."""
    return bool(_model_fields(source))


def onnx_note(source: Source) -> str | None:
    """Return what to say of a file that is an ONNX model, and None of any other."""
    fields = _model_fields(source)
    if not fields:
        return None
    note = "an ONNX file, which only `qtool inspect` reads"
    if any(number == _METADATA and start == _STAMP_ENTRY for number, start in fields):
        note += f"; its stamp is the JSON under {STAMP_KEY!r} in the model's metadata_props"
    return f"{note}. What qtool reads is a file of its own, as `qtool convert` wrote it"


def _model_fields(source: Source) -> list[tuple[int, bytes]]:
    """Return the outermost fields of an ONNX model, and none of any other file."""
    try:
        fields = list(_fields(source.file, source.num_bytes))
    except (ValueError, EOFError):
        return []
    numbers = [number for number, _ in fields]
    return fields if numbers and numbers[0] == _IR_VERSION and _GRAPH in numbers else []


def _fields(file: BinaryIO, num_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each outermost field and its first bytes.

    Raises:
        ValueError: not a field of a ModelProto.
        EOFError: the file ends within one.
    """
    offset = 0
    for _ in range(_MAX_FIELDS):
        if offset == num_bytes:
            return
        file.seek(offset)
        tag = _varint(file)
        number, wire_type = tag >> 3, tag & 7
        value = _varint(file)
        if _WIRE_TYPES.get(number) != wire_type or (number == _IR_VERSION and not 0 < value < _MAX_IR_VERSION):
            raise ValueError
        offset = file.tell()
        if wire_type == _VARINT:
            yield number, b""
            continue
        yield number, file.read(min(value, len(_STAMP_ENTRY)))
        offset += value
        if offset > num_bytes:
            raise EOFError


def _varint(file: BinaryIO) -> int:
    """Return the next number: seven bits in each byte, the lowest first, and the eighth where more follow."""
    value = 0
    for shift in range(0, 70, 7):
        (byte,) = file.read(1) or (None,)
        if byte is None:
            raise EOFError
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError
