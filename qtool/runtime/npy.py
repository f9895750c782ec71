"""Arrays as the bytes of .npy files, and back; nothing in them is unpickled."""

from __future__ import annotations

import io
import math

import numpy as np

from qtool.errors import FileFormatError


def array_bytes(array: np.ndarray) -> bytes:
    """Return an array as an .npy file; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False)
    return buffer.getvalue()


def array_from(data: bytes, *, where: str) -> np.ndarray:
    """Return the array of an .npy file; its header is compared with its size before anything is allocated.

    Args:
        data: the bytes of the file.
        where: what to call it in messages.

    Raises:
        FileFormatError: no array, or one of Python objects, or of another size than the header says.
    """
    stream = io.BytesIO(data)
    try:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            msg = f"shape {shape} of {dtype} does not fit {len(data)} bytes"
            raise ValueError(msg)  # noqa: TRY301 - told as the other faults of a header are
        stream.seek(0)
        array: np.ndarray = np.load(stream, allow_pickle=False)
    except ValueError as error:
        msg = f"{where}: is no array ({error}); the file is damaged, get it again"
        raise FileFormatError(msg) from error
    return array
