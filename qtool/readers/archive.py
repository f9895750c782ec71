"""Opens a zip archive, from a path or from bytes, with its bounds checked first; nothing in it is run or unpacked.

The entries of one archive lie below one root folder, whose name depends on who wrote it (`archive`, or the file's
stem). Names here are without it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.errors import FileFormatError
from qtool.readers.onnx_file import onnx_note
from qtool.readers.source import BLOCK_BYTES, Source, opened
from qtool.readers.zip_directory import DEFLATED, Entry, read_directory
from qtool.stamp import bounded_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

    from qtool.readers.facts import Place

MAX_TEXT_BYTES = 64 * 2**20
"""Of one JSON entry. The graph of a model of 10 000 ops takes some 20 MB."""


class Archive:
    """The entries of one zip; close it, or use it in a `with` statement.

    Attributes:
        where: what to call it in messages.
        num_bytes: size of the file.
        root: the folder all entries lie in, with its slash; empty if there is no single one.
        names: names of all entries without the root, in the order they lie in the file.

    Example:
        >>> with read_archive(Path("int8.pt2")) as archive:
        ...     archive.root, archive.read("byteorder")
        ('archive/', b'little')
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.where = where
        self.num_bytes = file.seek(0, io.SEEK_END)
        self._file = file
        found = read_directory(file, self.num_bytes)
        files = {entry: offset for entry, offset in found.items() if not entry.name.endswith("/")}
        self.root = _common_root([entry.name for entry in files])
        self._entries = {entry.name.removeprefix(self.root): (entry, offset) for entry, offset in files.items()}
        self.names = tuple(self._entries)
        self._documents: dict[str, object] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def size(self, name: str) -> int:
        """Return the bytes of an entry's content, without reading it."""
        return self._entry(name)[0].num_bytes

    def read(self, name: str, *, limit: int = MAX_TEXT_BYTES) -> bytes:
        """Return the content of an entry.

        Args:
            name: its name without the root.
            limit: refuse an entry with more bytes.

        Raises:
            FileFormatError: no such entry, above the limit, or damaged.
        """
        size = self.size(name)
        if size > limit:
            msg = f"{self.where}: entry {name!r} has {size} bytes; at most {limit} are read"
            raise FileFormatError(msg)
        return b"".join(self.chunks(name))

    def json(self, name: str) -> object:
        """Return the JSON value of an entry; it is parsed once, whoever asks.

        Raises:
            FileFormatError: the entry is missing, damaged, too large or not JSON.
        """
        if name not in self._documents:
            try:
                self._documents[name] = bounded_json.loads(self.read(name))
            except (ValueError, RecursionError) as error:
                if isinstance(error, FileFormatError):
                    raise
                msg = f"{self.where}: entry {name!r} is not valid JSON: {error}"
                raise FileFormatError(msg) from error
        return self._documents[name]

    def sha256(self, name: str) -> str:
        """Return the sha256 of an entry's content; only a piece of it is in memory at any time."""
        total = hashlib.sha256()
        for chunk in self.chunks(name):
            total.update(chunk)
        return total.hexdigest()

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an entry piece by piece, and check size and CRC at its end.

        Raises:
            FileFormatError: no such entry, or damaged.
        """
        entry, offset = self._entry(name)
        crc, num_bytes = 0, 0
        for chunk in self._unpacked(entry, offset):
            crc, num_bytes = zlib.crc32(chunk, crc), num_bytes + len(chunk)
            yield chunk
        if num_bytes != entry.num_bytes or crc != entry.crc:
            raise self._damaged(name)

    def blocks(self, place: Place) -> Iterator[bytes]:
        """Yield the bytes at a place in an entry, in pieces of at most `BLOCK_BYTES`.

        Raises:
            FileFormatError: no such entry, or it has fewer bytes.
        """
        entry, offset = self._entry(place.part)
        end = place.offset + place.num_bytes
        if min(place.offset, place.num_bytes) < 0 or end > entry.num_bytes:
            msg = f"{self.where}: entry {place.part!r} has {entry.num_bytes} bytes, and a tensor reaches to byte {end}"
            raise FileFormatError(msg)
        if entry.method != DEFLATED:
            source = Source(self._file, self.where, self.num_bytes)
            yield from source.blocks(dataclasses.replace(place, offset=offset + place.offset))
            return
        start = 0
        for chunk in self._unpacked(entry, offset):
            yield chunk[max(0, place.offset - start) : max(0, end - start)]
            start += len(chunk)

    def _unpacked(self, entry: Entry, offset: int) -> Iterator[bytes]:
        if entry.method != DEFLATED:
            yield from self._packed(entry, offset)
            return
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        left = entry.num_bytes + 1  # one more than announced shows that there is more
        try:
            for packed in self._packed(entry, offset):
                data = packed
                while left:
                    chunk = inflate.decompress(data, min(left, BLOCK_BYTES))
                    data = inflate.unconsumed_tail
                    if not chunk and not data:
                        break
                    left -= len(chunk)
                    yield chunk
        except zlib.error as error:
            raise self._damaged(entry.name.removeprefix(self.root)) from error

    def _packed(self, entry: Entry, offset: int) -> Iterator[bytes]:
        for start in range(0, entry.packed_bytes, BLOCK_BYTES):
            self._file.seek(offset + start)
            yield self._file.read(min(BLOCK_BYTES, entry.packed_bytes - start))

    def _entry(self, name: str) -> tuple[Entry, int]:
        if name not in self._entries:
            msg = f"{self.where}: there is no entry {name!r} in it"
            raise FileFormatError(msg)
        return self._entries[name]

    def _damaged(self, name: str) -> FileFormatError:
        return FileFormatError(
            f"{self.where}: entry {name!r} is damaged: size or checksum differ; get the file again from its source"
        )


def read_archive(source: Path | bytes, *, where: str | None = None) -> Archive:
    """Return the archive in a file or in bytes, its table of contents read and checked.

    Args:
        source: path of the file, or its bytes.
        where: what to call it in messages; None takes the path, or `data`.

    Raises:
        UsageError: the path cannot be read.
        FileFormatError: not a zip, damaged, or one of the things docs/security.md lists as refused.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else opened(source)
    where = where or ("data" if isinstance(source, bytes) else str(source))
    try:
        with not_an_archive(Source(file, where, file.seek(0, io.SEEK_END))):
            return Archive(file, where)
    except FileFormatError:
        file.close()
        raise


@contextmanager
def not_an_archive(source: Source) -> Iterator[None]:
    """Say in an error that comes from within what the file is, if it is no archive."""
    try:
        yield
    except FileFormatError as error:
        note = onnx_note(source) or _start_note(source)
        msg = f"{source.where}: {note or error}"
        raise FileFormatError(msg) from error


def _start_note(source: Source) -> str | None:
    """Return what a file is that is no zip, told from its first bytes; None if that says nothing."""
    if not source.num_bytes:
        return "an empty file; whatever should have written it failed, and its message says why"
    from qtool.readers.pickled import LOOKED_AT_BYTES, pickle_note

    return pickle_note(source.read(0, min(source.num_bytes, LOOKED_AT_BYTES)))


def _common_root(names: list[str]) -> str:
    """Return the first folder if all names lie in it, with its slash, else an empty string."""
    roots = {name.partition("/")[0] for name in names}
    return f"{roots.pop()}/" if len(roots) == 1 and all("/" in name for name in names) else ""
