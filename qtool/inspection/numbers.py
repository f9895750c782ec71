"""Reads tensors of an open file as numpy arrays: small ones whole, weights as whole output channels, block by block.

Whatever a file says of a tensor is checked against the bytes that it has before an array is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from qtool.inspection.meter import Meter
    from qtool.readers.facts import Tensor

_DTYPES: Final = frozenset(
    {"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"}
)
_MAX_BYTES: Final = 1 << 26
"""Of a tensor that is read whole, and of one output channel: none that anybody has seen is that large."""


def is_readable(tensor: Tensor) -> bool:
    """Return whether its bytes are in the file, as many as it needs, in a form that is known here."""
    place = tensor.place
    is_known = tensor.dtype in _DTYPES or tensor.dtype in ("bfloat16", "bool")
    return (
        is_known
        and place is not None
        and tensor.num_elements > 0
        and (tensor.strides is not None or place.num_bytes == tensor.num_bytes)
    )


def read_whole(meter: Meter, tensor: Tensor) -> NDArray[Any] | None:
    """Return a tensor as an array in its shape, bfloat16 as float32; None where it cannot be read, or is too large."""
    if not is_readable(tensor) or tensor.place is None or max(tensor.place.num_bytes, tensor.num_bytes) > _MAX_BYTES:
        return None
    try:
        blocks = meter.blocks(tensor.place)
        flat = None if blocks is None else as_array(b"".join(blocks), tensor.dtype)
    except FileFormatError as error:
        meter.remember(str(error))
        return None
    if flat is None or tensor.strides is None:
        return None if flat is None else flat.reshape(tensor.shape)
    return _strided(flat, tensor.shape, tensor.strides)


def _strided(flat: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any] | None:
    """Return a copy of elements that do not lie in C order; None where the strides lead out of them."""
    if len(strides) != len(shape) or min(strides, default=0) < 0:
        return None
    last = sum(stride * (size - 1) for stride, size in zip(strides, shape, strict=True))
    if last >= len(flat):
        return None
    in_bytes = [stride * flat.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat, shape, in_bytes, writeable=False).copy()


def flat_numbers(meter: Meter, values: tuple[float, ...] | Tensor | None) -> NDArray[np.float64] | None:
    """Return scales or zero points, flat; None where they are not known or cannot be read."""
    if values is None:
        return None
    found = np.array(values, dtype=np.float64) if isinstance(values, tuple) else read_whole(meter, values)
    return None if found is None else found.reshape(-1).astype(np.float64)


def rows_of(meter: Meter, tensor: Tensor, row_elements: int) -> Iterator[NDArray[Any]]:
    """Yield a tensor's elements in order, flat, so many at a time that all but the last are whole rows.

    Nothing is yielded of a tensor that cannot be read, or whose rows are too large.

    Args:
        meter: the open file.
        tensor: what to read; in C order.
        row_elements: elements of a row.

    Raises:
        FileFormatError: while it is read: its bytes are not there.
    """
    if not is_readable(tensor) or tensor.place is None or tensor.strides is not None:
        return
    row_bytes = row_elements * (tensor.num_bytes // tensor.num_elements)
    blocks = meter.blocks(tensor.place) if 0 < row_bytes <= _MAX_BYTES else None
    for data in () if blocks is None else _whole_rows(blocks, row_bytes):
        yield as_array(data, tensor.dtype)


def as_array(data: bytes | memoryview, dtype: str) -> NDArray[Any]:
    """Return little-endian bytes as a flat array, bfloat16 as float32.

    Raises:
        FileFormatError: they are no whole number of elements.
    """
    is_brain = dtype == "bfloat16"
    stored = np.dtype("uint16" if is_brain else "uint8" if dtype == "bool" else dtype).newbyteorder("<")
    if len(data) % stored.itemsize:
        msg = f"{len(data)} bytes are no whole number of {dtype} values"
        raise FileFormatError(msg)
    found = np.frombuffer(data, stored)
    return (found.astype(np.uint32) << 16).view(np.float32) if is_brain else found


def _whole_rows(blocks: Iterable[bytes], row_bytes: int) -> Iterator[memoryview | bytes]:
    parts: list[bytes] = []
    num_bytes = 0
    for block in blocks:
        parts.append(block)
        num_bytes += len(block)
        if num_bytes < row_bytes:
            continue
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        whole = num_bytes - num_bytes % row_bytes
        yield memoryview(data)[:whole]
        parts, num_bytes = [data[whole:]] if whole < len(data) else [], num_bytes - whole
    if num_bytes:
        yield b"".join(parts)
