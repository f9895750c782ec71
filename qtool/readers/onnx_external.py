"""Finds the data of ONNX tensors that lies in files beside the model; only in its folder, never through a link.

Source: TensorProto.external_data in onnx.proto: a location relative to the model, an offset and a length in bytes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import Place
from qtool.readers.risks import Risk, RiskKind
from qtool.readers.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.onnx_messages import TensorMessage

_MAX_DIGITS: Final = 19
_SHOWN: Final = 200


class ExternalData:
    """The files beside one model; each is looked at once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._sizes: dict[str, int | Risk] = {}

    def place(self, tensor: TensorMessage, num_bytes: int) -> Place | Risk:
        """Return where a tensor's bytes lie, or what is wrong with what it says of that.

        Args:
            tensor: one whose `external` is not None.
            num_bytes: what its dtype and sizes need.
        """
        words = tensor.external or {}
        location = words.get("location", "")
        size = self._sizes.get(location)
        if size is None:
            size = self._sizes[location] = _size(self._source.folder, location)
        if isinstance(size, Risk):
            return size
        offset, length = _number(words, "offset", 0), _number(words, "length", num_bytes)
        if offset is None or length is None:
            return _missing(location, f"offset or length of tensor {tensor.name[:_SHOWN]!r} is no number")
        if length != num_bytes:
            return _missing(location, f"tensor {tensor.name[:_SHOWN]!r} has {length} bytes and needs {num_bytes}")
        if offset + length > size:
            detail = f"tensor {tensor.name[:_SHOWN]!r} ends at byte {offset + length} and the file has {size}"
            return _missing(location, detail)
        return Place(part=location, offset=offset, num_bytes=num_bytes)

    def blocks(self, place: Place) -> Iterator[bytes]:
        """Yield the bytes at a place of such a file, in pieces of at most `BLOCK_BYTES`.

        Raises:
            FileFormatError: they are not there, or not in the model's folder.
        """
        where = f"{self._source.where}: {place.part[:_SHOWN]!r}"
        size = _size(self._source.folder, place.part)
        if isinstance(size, Risk) or self._source.folder is None:
            msg = f"{where} cannot be read"
            raise FileFormatError(msg)
        descriptor = _opened(self._source.folder / place.part)
        if descriptor is None:
            msg = f"{where} cannot be read"
            raise FileFormatError(msg)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                msg = f"{where} is no file"
                raise FileFormatError(msg)
            beside = Source(file, where, os.fstat(descriptor).st_size)
            yield from beside.blocks(Place(part="", offset=place.offset, num_bytes=place.num_bytes))


def _size(folder: Path | None, location: str) -> int | Risk:
    """Return the size of a file, or why it is none of the model's."""
    problem = _leads_out(location)
    if problem is not None:
        return Risk(RiskKind.OUTSIDE, location[:_SHOWN], problem)
    if folder is None:
        return _missing(location, "weights are in this file, and only the model's own bytes were given")
    path = folder
    for part in PurePosixPath(location).parts:
        path /= part
        try:
            mode = path.lstat().st_mode
        except (OSError, ValueError):
            return _missing(location, "weights are in this file, and it is not there")
        if stat.S_ISLNK(mode):
            return Risk(RiskKind.OUTSIDE, location[:_SHOWN], "weights are behind a symbolic link")
    if not stat.S_ISREG(mode):
        return Risk(RiskKind.OUTSIDE, location[:_SHOWN], "weights are in what is no regular file")
    return path.lstat().st_size


def _leads_out(location: str) -> str | None:
    if not location or "\0" in location:
        return "weights are in a file without a name"
    parts = PurePosixPath(location).parts
    if not parts or location.startswith("/") or PureWindowsPath(location).drive or "\\" in location:
        return "weights are at an absolute path, or one of another system"
    if ".." in parts:
        return "weights are in another folder"
    return None


def _opened(path: Path) -> int | None:
    """Return the descriptor of a file that is no link; without waiting, should it have become a pipe."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None


def _number(words: Mapping[str, str], key: str, default: int) -> int | None:
    text = words.get(key)
    if text is None:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _missing(location: str, detail: str) -> Risk:
    return Risk(RiskKind.MISSING_DATA, location[:_SHOWN], detail)
