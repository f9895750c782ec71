"""The numbers of small tensors, such as scales and zero points, read from their places."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.readers.facts import Place, Tensor

MAX_BYTES: Final = 64 * 1024
"""Of a tensor whose numbers are read; larger ones are weights."""

_FORMATS: Final = {"float16": "e", "float32": "f", "float64": "d", "int8": "b", "uint8": "B", "int16": "h",
                   "int32": "i", "int64": "q", "bool": "?"}  # fmt: skip


def numbers_of(tensor: Tensor, blocks: Callable[[Place], Iterator[bytes]]) -> tuple[float, ...] | None:
    """Return the elements of a small tensor in C order; None of a large one, or where its bytes cannot be read so.

    Args:
        tensor: little-endian, in C order.
        blocks: yields the bytes at a place.

    Raises:
        FileFormatError: the bytes are not there.
    """
    place, code = tensor.place, _FORMATS.get(tensor.dtype)
    if place is None or code is None or tensor.strides is not None or place.num_bytes > MAX_BYTES:
        return None
    data = b"".join(blocks(place))
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
