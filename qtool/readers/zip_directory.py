"""Reads a zip's table of contents and refuses what a careful writer never makes, before any entry is read.

Two programs can see two different archives in one crafted zip: a name given twice, sizes that differ between the
two headers, entries that overlap, bytes in front. What is checked here must be what torch reads later, so every such
archive is refused. Nothing is allocated on the word of the file: counts and sizes are compared with the file first.

Source: the APPNOTE.TXT of PKWARE, sections 4.3 and 4.4, for all signatures, offsets and flags.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from typing import BinaryIO

MAX_ENTRIES = 50_000
"""A model of 10 000 layers has some 40 000; reading the table of so many takes a second."""
MAX_NAME_BYTES = 1024
MAX_RATIO = 200
"""Of an entry above SMALL_BYTES. Deflate reaches 1032; repetitive JSON and sparse weights stay below 100."""
SMALL_BYTES = 2**20
"""What an entry may unpack to at any ratio: an observer's empty histogram is nothing but zeros."""
MAX_INFLATED_BYTES = 256 * 2**20
"""Of all compressed entries together, if they unpack to more than `MAX_MEAN_RATIO` times what they take: all are read.
torch stores its entries uncompressed, so those are no larger than the file."""
MAX_MEAN_RATIO = 8
"""Of all compressed entries together. Weights do not reach 4, but for those that are mostly zeros."""

STORED, DEFLATED = 0, 8

_END = struct.Struct("<IHHHHIIH")
_END64_LOCATOR = struct.Struct("<IIQI")
_END64 = struct.Struct("<IQHHIIQQQQ")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_END_MAGIC, _END64_LOCATOR_MAGIC, _END64_MAGIC = 0x06054B50, 0x07064B50, 0x06064B50
_CENTRAL_MAGIC, _LOCAL_MAGIC = 0x02014B50, 0x04034B50

_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 0x0001, 0x0008, 0x0800
_ALLOWED_FLAGS = _SIZES_FOLLOW | _UTF8 | 0x0006  # 0x0006: how hard the writer tried to compress
_MAX_VERSION = 63  # of the format that is needed to read the entry, times ten
_ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x0001, 0x7075
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF  # "see the zip64 field instead"
_UNIX, _FILE_KIND, _LINK = 3, 0o170000, 0o120000  # of the system that wrote the entry, and of its mode there


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a zip.

    Attributes:
        name: its whole name, a relative path with forward slashes.
        method: STORED or DEFLATED.
        crc: CRC-32 of its content.
        packed_bytes: bytes it takes in the file.
        num_bytes: bytes of its content.
        flags: as both of its headers state them.
        header_offset: where its local header stands.
    """

    name: str
    method: int
    crc: int
    packed_bytes: int
    num_bytes: int
    flags: int
    header_offset: int


@dataclass(frozen=True)
class _Directory:
    num_entries: int
    offset: int
    num_bytes: int


def read_directory(file: BinaryIO, num_bytes: int) -> dict[Entry, int]:
    """Return the entries of the zip in `file`, in the order they lie there, each with the offset of its content.

    Args:
        file: open for reading, seekable.
        num_bytes: its size.

    Raises:
        FileFormatError: not a zip, damaged, or one of the things that are refused; see docs/security.md.
    """
    directory = _find_directory(file, num_bytes)
    table = _read_at(file, directory.offset, directory.num_bytes)
    entries = _parse_table(table, directory)
    _check_bounds(entries)
    return _locate(file, entries, directory.offset)


def _find_directory(file: BinaryIO, num_bytes: int) -> _Directory:
    """Return where the table of contents stands; it must end where the end records begin."""
    if num_bytes < _END.size or _read_at(file, 0, 2) != b"PK":
        _refuse("not a zip archive; qtool's files are, as torch.export.save writes them")
    end_offset = num_bytes - _END.size
    magic, disk, first_disk, here, total, size, offset, comment = _END.unpack(_read_at(file, end_offset, _END.size))
    if magic != _END_MAGIC or comment:
        _refuse("no zip directory at the end: the file is cut short, or has bytes after it")
    if disk or first_disk or here != total:
        _refuse("one part of a zip in several parts")
    directory = _Directory(total, offset, size)
    if end_offset >= _END64_LOCATOR.size:
        locator_offset = end_offset - _END64_LOCATOR.size
        magic, disk, end64_offset, _ = _END64_LOCATOR.unpack(_read_at(file, locator_offset, _END64_LOCATOR.size))
        if magic == _END64_LOCATOR_MAGIC:
            directory = _read_end64(file, end64_offset, locator_offset, directory)
            end_offset = end64_offset
    if directory.offset + directory.num_bytes != end_offset:
        _refuse("the zip directory is not where its end record says: bytes were added or are missing")
    if directory.num_entries > MAX_ENTRIES or directory.num_entries * _CENTRAL.size > directory.num_bytes:
        msg = f"the zip directory claims {directory.num_entries} entries in {directory.num_bytes} bytes"
        _refuse(f"{msg}; at most {MAX_ENTRIES} entries are read")
    return directory


def _read_end64(file: BinaryIO, offset: int, limit: int, small: _Directory) -> _Directory:
    if offset + _END64.size != limit:
        _refuse("the zip64 end record is not where its locator says")
    fields = _END64.unpack(_read_at(file, offset, _END64.size))
    magic, _, _, _, disk, first_disk, here, total, size, directory_offset = fields
    if magic != _END64_MAGIC or disk or first_disk or here != total:
        _refuse("the zip64 end record is damaged")
    large = _Directory(total, directory_offset, size)
    pairs = (
        (small.num_entries, large.num_entries, _FULL_16),
        (small.offset, large.offset, _FULL_32),
        (small.num_bytes, large.num_bytes, _FULL_32),
    )
    if any(narrow not in (wide, full) for narrow, wide, full in pairs):
        _refuse("the two end records of the zip contradict each other")
    return large


def _parse_table(table: bytes, directory: _Directory) -> list[Entry]:
    entries, position = [], 0
    for _ in range(directory.num_entries):
        if position + _CENTRAL.size > len(table):
            _refuse("the zip directory ends inside an entry")
        fields = _CENTRAL.unpack_from(table, position)
        position += _CENTRAL.size
        name_bytes, extra_bytes, comment_bytes = fields[10:13]
        if position + name_bytes + extra_bytes + comment_bytes > len(table):
            _refuse("the zip directory ends inside an entry")
        raw_name = table[position : position + name_bytes]
        extra = table[position + name_bytes : position + name_bytes + extra_bytes]
        position += name_bytes + extra_bytes + comment_bytes
        entries.append(_entry(fields, raw_name, extra))
    if position != len(table):
        _refuse("the zip directory holds bytes that belong to no entry")
    return entries


def _entry(fields: tuple[int, ...], raw_name: bytes, extra: bytes) -> Entry:
    magic, made_by, version, flags, method, _, _, crc, packed, size, _, _, _, disk, _, attributes, offset = fields
    if magic != _CENTRAL_MAGIC or disk:
        _refuse("the zip directory is damaged")
    name = _decode_name(raw_name, flags)
    if flags & _ENCRYPTED or flags & ~_ALLOWED_FLAGS or version & 0xFF > _MAX_VERSION:
        _refuse(f"entry {name!r} is encrypted or uses zip features that are not read")
    if made_by >> 8 == _UNIX and attributes >> 16 & _FILE_KIND == _LINK:
        _refuse(f"entry {name!r} is a symbolic link, whose content is elsewhere")
    if method not in (STORED, DEFLATED):
        _refuse(f"entry {name!r} is compressed by method {method}; stored (0) and deflate (8) are read")
    size, packed, offset = _widen(extra, (size, packed, offset), name)
    if method == STORED and packed != size:
        _refuse(f"entry {name!r} is stored, but its two sizes {packed} and {size} differ")
    return Entry(
        name=name, method=method, crc=crc, packed_bytes=packed, num_bytes=size, flags=flags, header_offset=offset
    )


def _widen(extra: bytes, values: tuple[int, int, int], name: str) -> list[int]:
    """Return size, packed size and offset, those that do not fit 32 bits read from the zip64 field."""
    wide = _zip64_field(extra)
    result = []
    for value in values:
        if value == _FULL_32:
            if len(wide) < 8:
                _refuse(f"entry {name!r} lacks the zip64 field that its sizes ask for")
            value, wide = int.from_bytes(wide[:8], "little"), wide[8:]  # noqa: PLW2901 - the field is read in order
        result.append(value)
    return result


def _zip64_field(extra: bytes) -> bytes:
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if kind == _UNICODE_PATH_EXTRA:
            _refuse("an entry has a second name, which some readers take for its name")
        if kind == _ZIP64_EXTRA:
            return extra[position + 4 : position + 4 + size]
        position += 4 + size
    return b""


def _decode_name(raw: bytes, flags: int) -> str:
    """Return the entry's name, or refuse one that could mean another place or another name to another reader."""
    try:
        name = raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError as error:
        msg = f"entry name {raw[:80]!r} is not {error.encoding}"
        raise FileFormatError(msg) from error
    parts = name.removesuffix("/").split("/")
    if len(raw) > MAX_NAME_BYTES or not name.isprintable() or "\\" in name or ":" in name:
        _refuse(f"entry name {name[:80]!r} is too long or holds a character that is not allowed")
    if any(part in ("", ".", "..") for part in parts):
        _refuse(f"entry name {name[:80]!r} is absolute or leads out of the archive")
    return name


def _check_bounds(entries: list[Entry]) -> None:
    seen: set[str] = set()
    packed, inflated = 0, 0
    for entry in entries:
        # torch's reader does not tell upper from lower case.
        if entry.name.lower() in seen:
            _refuse(f"two entries are named {entry.name!r}, but for case: which one counts depends on the reader")
        seen.add(entry.name.lower())
        if entry.method == DEFLATED:
            packed, inflated = packed + entry.packed_bytes, inflated + entry.num_bytes
            if entry.num_bytes > max(SMALL_BYTES, MAX_RATIO * entry.packed_bytes):
                msg = f"entry {entry.name!r} unpacks {entry.packed_bytes} bytes to {entry.num_bytes}"
                _refuse(f"{msg}; at most {MAX_RATIO} times are read")
    if inflated > max(MAX_INFLATED_BYTES, MAX_MEAN_RATIO * packed):
        msg = f"its compressed entries unpack {packed} bytes to {inflated}"
        _refuse(f"{msg}; at most {MAX_MEAN_RATIO} times are read above {MAX_INFLATED_BYTES} bytes")


def _locate(file: BinaryIO, entries: list[Entry], limit: int) -> dict[Entry, int]:
    """Return where each entry's content begins; entries must lie one after the other, each as both headers state."""
    found: dict[Entry, int] = {}
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if not found and entry.header_offset:
            _refuse("the file has bytes in front of the zip archive")
        if entry.header_offset < end or entry.header_offset + _LOCAL.size > limit:
            _refuse(f"entry {entry.name!r} overlaps another, or lies outside the archive")
        header = _read_at(file, entry.header_offset, _LOCAL.size)
        name_bytes, extra_bytes = _check_local_header(file, entry, header)
        offset = entry.header_offset + _LOCAL.size + name_bytes + extra_bytes
        end = offset + entry.packed_bytes
        if end > limit:
            _refuse(f"entry {entry.name!r} reaches past the end of the archive")
        found[entry] = offset
    return found


def _check_local_header(file: BinaryIO, entry: Entry, header: bytes) -> tuple[int, int]:
    """Return the lengths of its name and extra field; what it states must be what the directory states."""
    magic, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack(header)
    raw_name = _read_at(file, entry.header_offset + _LOCAL.size, name_bytes)
    expected = (_LOCAL_MAGIC, entry.flags, entry.method, entry.name.encode())
    if (magic, flags, method, raw_name) != expected or not _states_same_sizes(entry, crc, packed, size):
        _refuse(f"the two headers of entry {entry.name!r} contradict each other")
    return name_bytes, extra_bytes


def _states_same_sizes(entry: Entry, crc: int, packed: int, size: int) -> bool:
    pairs = ((crc, entry.crc), (packed, entry.packed_bytes), (size, entry.num_bytes))
    # With this flag the sizes follow the content, and the header in front of it leaves them open.
    is_open = (0, _FULL_32) if entry.flags & _SIZES_FOLLOW else (_FULL_32,)
    return all(local in (central, *is_open) for local, central in pairs)


def _read_at(file: BinaryIO, offset: int, num_bytes: int) -> bytes:
    file.seek(offset)
    data = file.read(num_bytes)
    if len(data) != num_bytes:
        _refuse("the file ends inside a part that it announces")
    return data


def _refuse(reason: str) -> NoReturn:
    raise FileFormatError(reason)
