"""Tensors of an ONNX file: where their bytes lie, and the numbers in small ones.

Values are raw bytes, in this file or beside it, or numbers one by one in a field for their kind: floats and doubles
then lie in the file as plain bytes too, integers do not. Source: TensorProto in onnx.proto.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import BITS, Place, Tensor
from qtool.readers.onnx_external import ExternalData
from qtool.readers.onnx_messages import MAX_FIELDS
from qtool.readers.protobuf import Messages, signed
from qtool.readers.risks import Risk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.onnx_messages import TensorMessage
    from qtool.readers.protobuf import Field
    from qtool.readers.source import Source

MAX_NUMBERS: Final = 16_384
"""Elements of one tensor whose numbers are read; scales of more stay a tensor."""

_MAX_ALL_NUMBERS: Final = 1 << 21
"""Of all tensors together: each becomes an object of 24 bytes or more."""

_RAW_DATA, _FLOATS, _DOUBLES = 9, 4, 10
_PLAIN: Final = (_RAW_DATA, _FLOATS, _DOUBLES)
_MAX_RISKS: Final = 100
_PLAIN_DTYPES: Final = {_FLOATS: ("float32", "complex64"), _DOUBLES: ("float64", "complex128")}
_FORMATS: Final = {
    "float32": "f", "float64": "d", "float16": "e", "bfloat16": "H", "int8": "b", "uint8": "B", "int16": "h",
    "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "bool": "B",
}  # fmt: skip


class Storage:
    """The tensors of one file, and what is wrong with where they are said to be."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._external = ExternalData(source)
        self._messages = Messages(source, "an ONNX file", MAX_FIELDS)
        self._num_numbers = 0
        self.risks: dict[Risk, None] = {}

    def tensor(self, message: TensorMessage, name: str) -> Tensor:
        """Return a tensor under a name, with the place of its bytes where there is one.

        Raises:
            FileFormatError: it has another number of bytes than its dtype and sizes need.
        """
        bare = Tensor(name=name, dtype=message.dtype, shape=message.dims, place=None)
        place = self._place(message, bare)
        return bare if place is None else Tensor(name=name, dtype=message.dtype, shape=message.dims, place=place)

    def blocks(self, place: Place) -> Iterator[bytes]:
        """Yield the bytes at a place, in pieces; see `OpenModel.blocks`."""
        return self._external.blocks(place) if place.part else self._source.blocks(place)

    def numbers(self, message: TensorMessage, tensor: Tensor) -> tuple[float, ...] | None:
        """Return a small tensor's values in C order; None if it is not small, or not stored in a way that is read."""
        number = tensor.num_elements
        if number > MAX_NUMBERS or self._num_numbers + number > _MAX_ALL_NUMBERS:
            return None
        found = self._listed(message) if tensor.place is None else self._plain(tensor)
        if found is None or len(found) != number:
            return None
        self._num_numbers += number
        return found

    def _place(self, message: TensorMessage, tensor: Tensor) -> Place | None:
        if message.dtype not in BITS:
            return None
        if message.external is None:
            return self._own_place(message, tensor)
        found = self._external.place(message, tensor.num_bytes)
        if isinstance(found, Risk):
            if len(self.risks) < _MAX_RISKS:
                self.risks[found] = None
            return None
        return found

    def _own_place(self, message: TensorMessage, tensor: Tensor) -> Place | None:
        """Return where a tensor's bytes lie in the file; None if its values are no plain bytes."""
        if len(message.values) != 1:
            return None
        (field,) = message.values
        if field.number not in _PLAIN or message.dtype not in _PLAIN_DTYPES.get(field.number, (message.dtype,)):
            return None
        size = field.end - field.start
        if size != tensor.num_bytes:
            msg = (
                f"{self._source.where}: tensor {tensor.name[:200]!r} has {size} bytes, and its dtype and sizes need "
                f"{tensor.num_bytes}; the file is damaged, get it again from its source"
            )
            raise FileFormatError(msg)
        return Place(part="", offset=field.start, num_bytes=size)

    def _plain(self, tensor: Tensor) -> tuple[float, ...] | None:
        assert tensor.place is not None
        data = b"".join(self.blocks(tensor.place))
        return decoded(data, tensor.dtype, tensor.num_elements)

    def _listed(self, message: TensorMessage) -> tuple[float, ...] | None:
        """Return numbers that stand one by one, or in several pieces."""
        found: list[float] = []
        for field in message.values:
            found += self._numbers_of(field, message.dtype)
            if len(found) > MAX_NUMBERS:
                return None
        if message.dtype in ("float16", "bfloat16"):
            bits = struct.pack(f"<{len(found)}H", *(int(each) & 0xFFFF for each in found))
            return decoded(bits, message.dtype, len(found))
        if BITS.get(message.dtype, 8) < 8:
            pairs = bytes(int(each) & 0xFF for each in found)
            return decoded(pairs, message.dtype, _num_elements(message))
        return tuple(found)

    def _numbers_of(self, field: Field, dtype: str) -> list[float]:
        if field.number not in _PLAIN:
            numbers = self._messages.varints(field) if field.end - field.start <= 10 * MAX_NUMBERS else []
            return [each if dtype.startswith("u") else signed(each) for each in numbers]
        word = dtype if field.number == _RAW_DATA else {_FLOATS: "float32", _DOUBLES: "float64"}[field.number]
        size = field.end - field.start
        if word not in _FORMATS or size > 8 * MAX_NUMBERS:
            return []
        return list(decoded(self._messages.bytes_of(field), word, size * 8 // BITS[word]) or ())


def decoded(data: bytes, dtype: str, number: int) -> tuple[float, ...] | None:
    """Return so many little-endian numbers; None for a dtype that is not read here, or another number of bytes.

    Example:
        >>> decoded(bytes([0x2F]), "int4", 2)
        (-1, 2)
    """
    bits = BITS.get(dtype, 0)
    if len(data) != (number * bits + 7) // 8:
        return None
    if bits < 8 and dtype.startswith(("int", "uint")):
        return tuple(_small(data, bits, is_signed=dtype.startswith("int")))[:number]
    if dtype not in _FORMATS:
        return None
    if dtype == "bfloat16":
        wide = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
        return struct.unpack(f"<{number}f", wide)
    return struct.unpack(f"<{number}{_FORMATS[dtype]}", data)


def _small(data: bytes, bits: int, *, is_signed: bool) -> Iterator[int]:
    """Yield numbers of less than a byte, the lowest bits first."""
    half = 1 << bits - 1
    for byte in data:
        for shift in range(0, 8, bits):
            code = byte >> shift & (1 << bits) - 1
            yield code - (1 << bits) if is_signed and code >= half else code


def _num_elements(message: TensorMessage) -> int:
    number = 1
    for size in message.dims:
        number *= size
    return number
