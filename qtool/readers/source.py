"""A file, or bytes in memory, read piece by piece; and a model file that is open for whoever measures its tensors."""

from __future__ import annotations

import io
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.errors import FileFormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from qtool.readers.facts import FileFacts, Place

BLOCK_BYTES = 1 << 20
"""Of one piece. What is mapped or read at once counts as resident, and a weight may have gigabytes."""


@dataclass(frozen=True)
class Source:
    """An open file.

    Attributes:
        file: seekable; who reads from it seeks first.
        where: what to call it in messages.
        num_bytes: its size.
        folder: the folder it lies in, for formats with data beside the file; None for bytes in memory.
    """

    file: BinaryIO
    where: str
    num_bytes: int
    folder: Path | None = None

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Return bytes of the file.

        Raises:
            FileFormatError: it has fewer.
        """
        if offset < 0 or num_bytes < 0 or offset + num_bytes > self.num_bytes:
            msg = f"{self.where}: bytes {offset}..{offset + num_bytes} are asked for, and it has {self.num_bytes}"
            raise FileFormatError(msg)
        self.file.seek(offset)
        return self.file.read(num_bytes)

    def blocks(self, place: Place) -> Iterator[bytes]:
        """Yield the bytes at a place of the file itself, in pieces of at most `BLOCK_BYTES`.

        Raises:
            FileFormatError: it has fewer.
        """
        for start in range(0, place.num_bytes, BLOCK_BYTES):
            yield self.read(place.offset + start, min(BLOCK_BYTES, place.num_bytes - start))


@dataclass(frozen=True)
class OpenModel:
    """A model file that is open for as long as its tensors may be read.

    Attributes:
        facts: what it says and holds.
        blocks: yields the bytes at a place in pieces of at most `BLOCK_BYTES`; raises FileFormatError if they are not
            there.
    """

    facts: FileFacts
    blocks: Callable[[Place], Iterator[bytes]]


@contextmanager
def opened_source(source: Path | bytes, *, where: str | None = None) -> Iterator[Source]:
    """Open a file, or bytes, for reading.

    Args:
        source: path of the file, or its bytes.
        where: what to call it in messages; None takes the path, or `data`.

    Raises:
        UsageError: the path cannot be read.
    """
    if isinstance(source, bytes):
        yield Source(io.BytesIO(source), where or "data", len(source))
        return
    with opened(source) as file:
        yield Source(file, where or str(source), file.seek(0, io.SEEK_END), source.parent)


def opened(path: Path) -> BinaryIO:
    """Return a regular file open for reading.

    Raises:
        UsageError: the path cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            msg = f"{path} is not a regular file; give a file, or pipe it in and write '-'"
            raise UsageError(msg)
        return path.open("rb")
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise UsageError(msg) from error
