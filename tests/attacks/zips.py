"""Archives that mean two things, unpack to too much, or name what is not theirs."""

from __future__ import annotations

import io
import json
import stat
import struct
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING

from tests.attacks.attack import Attack, read, refused
from tests.readers.sample_files import GRAPH, WEIGHTS_TABLE, file_bytes, program_entries, sample_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLE = sample_file()
CENTRAL, LOCAL_BYTES = b"PK\x01\x02", 30
SYMLINK = (stat.S_IFLNK | 0o777) << 16


def entry(name: str, *, mode: int = 0) -> zipfile.ZipInfo:
    """Return an entry as Unix's zip writes it."""
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode
    return info


def archive(*entries: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of these entries, in this order, whatever their names."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as file:
        warnings.simplefilter("ignore")
        for info, data in entries:
            file.writestr(entry(info) if isinstance(info, str) else info, data, compress_type=method)
    return out.getvalue()


def bomb(_: Path) -> bytes:
    return archive(("archive/data.pkl", b"\0" * 10**8), method=zipfile.ZIP_DEFLATED)


def repeated(number: int, content: bytes, *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip of very many entries of one content, which is packed once."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = compressor.compress(content) + compressor.flush() if method else content
    fixed = struct.pack("<HHHIII", method, 0, 33, zlib.crc32(content), len(packed), len(content))
    body, table = bytearray(), bytearray()
    for i in range(number):
        name = f"archive/data/{i}".encode()
        table += struct.pack("<IHHH", 0x02014B50, 20, 20, 0) + fixed
        table += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, len(body)) + name
        body += struct.pack("<IHH", 0x04034B50, 20, 0) + fixed + struct.pack("<HH", len(name), 0) + name + packed
    if number >= 0xFFFF:
        return bytes(body + table + end64(number, len(table), len(body)))
    return bytes(body + table + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, number, number, len(table), len(body), 0))


def end64(number: int, size: int, offset: int) -> bytes:
    """Return the three end records of a zip whose directory has these numbers."""
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, number, number, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, (offset + size) % 2**64, 1)
    return record + locator + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, *(2**16 - 1,) * 2, *(2**32 - 1,) * 2, 0)


def many_bombs(_: Path) -> bytes:
    """3 GB from 3 MB: each entry is just below what one may unpack to."""
    return repeated(3000, b"\0" * 2**20)


def bombs_below_the_bound(_: Path) -> bytes:
    """1.9 GB from 2 MB: nothing is above a bound, and reading it all takes long."""
    return repeated(1900, b"\0" * 2**20)


def nested_bomb(_: Path) -> bytes:
    inner = archive(("archive/models/model.json", b"[" * 10**6), method=zipfile.ZIP_DEFLATED)
    for _level in range(50):
        inner = archive(("archive/qtool/training.pt2", inner), ("archive/models/model.json", b"{}"))
    return inner


def shared_bytes(_: Path) -> bytes:
    """Every entry of the directory points at the same packed bytes."""
    data = bytearray(archive(*((f"a/{i:03}", b"x" * 1000) for i in range(100))))
    first, at = data.index(CENTRAL), data.index(CENTRAL)
    while (at := data.find(CENTRAL, at + 1)) > 0:
        data[at + 42 : at + 46] = data[first + 42 : first + 46]
    return bytes(data)


def nested_entries(_: Path) -> bytes:
    """The first entry's content holds the second entry, header and all."""
    inner = archive(("a/y", b"2"))
    local = inner[: inner.index(CENTRAL)]
    data = bytearray(archive(("a/x", local), ("a/y", b"2")))
    second = data.rindex(CENTRAL)
    data[second + 42 : second + 46] = struct.pack("<I", data.index(local))
    return bytes(data)


def with_central(offset: int, value: bytes) -> Callable[[Path], bytes]:
    """Return the builder of a zip in whose first directory entry some bytes are other ones."""

    def build(_: Path) -> bytes:
        data = bytearray(archive(("a/x", b"12345"), ("a/y", b"12345")))
        at = data.index(CENTRAL) + offset
        data[at : at + len(value)] = value
        return bytes(data)

    return build


def with_end(offset: int, value: bytes) -> Callable[[Path], bytes]:
    """Return the builder of a zip in whose end record some bytes are other ones."""

    def build(_: Path) -> bytes:
        data = bytearray(archive(("a/x", b"12345")))
        at = len(data) - 22 + offset
        data[at : at + len(value)] = value
        return bytes(data)

    return build


def zip64(count: int, size: int | None, offset: int | None) -> Callable[[Path], bytes]:
    """Return the builder of a zip whose zip64 end record states these numbers; None is the right one."""

    def build(_: Path) -> bytes:
        data = archive(("a/x", b"12345"))
        right_size, right_offset = struct.unpack("<II", data[-10:-2])
        right = end64(count, right_size if size is None else size, right_offset if offset is None else offset)
        locator = struct.pack("<IIQI", 0x07064B50, 0, len(data) - 22, 1)
        return data[:-22] + right[:56] + locator + right[76:]

    return build


def zip64_entry(size: int, offset: int) -> Callable[[Path], bytes]:
    """Return the builder of a zip with an entry of that size at that place, by its zip64 field."""

    def build(_: Path) -> bytes:
        extra = struct.pack("<HHQQQ", 1, 24, size, size, offset)
        central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, 0, *(2**32 - 1,) * 2, 3, len(extra),
                              0, 0, 0, 0, 2**32 - 1)  # fmt: skip
        local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, 0, 5, 5, 3, 0) + b"a/x12345"
        table = central + b"a/x" + extra
        return local + table + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(table), len(local), 0)

    return build


def too_many_entries(_: Path) -> bytes:
    """A directory of 50 001 entries, without the entries."""
    central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    return b"PK\3\4" + central * 50_001 + end64(50_001, 50_001 * len(central), 4)


def many_entries(_: Path) -> bytes:
    """As many entries as are read, of nothing."""
    return repeated(50_000, b"", method=zipfile.ZIP_STORED)


def named(name: str) -> Callable[[Path], bytes]:
    return lambda _: archive((f"a/{name}", b"x"), ("a/models/model.json", b"{}"))


def raw_name(name: bytes) -> Callable[[Path], bytes]:
    """Return the builder of a zip with an entry name of these bytes, which is no text."""
    placeholder = "n" * len(name)
    return lambda _: archive((placeholder, b"x")).replace(placeholder.encode(), name)


def link(target: str) -> Callable[[Path], bytes]:
    """Return the builder of a checkpoint whose weight is a symbolic link, as zip stores it."""
    return lambda _: archive(("a/models/model.json", b"{}"), (entry("a/data/0", mode=SYMLINK), target.encode()))


def second_name(_: Path) -> bytes:
    info = entry("a/x")
    info.extra = struct.pack("<HHBI", 0x7075, 8, 1, zlib.crc32(b"a/x")) + b"a/y"
    return archive((info, b"1"))


def wrong_checksum(_: Path) -> bytes:
    return SAMPLE.replace(b'{"version": 1}', b'{"version": 2}')


def changed(name: str, change: Callable[[dict[str, object]], None]) -> Callable[[Path], bytes]:
    """Return the builder of a .pt2 in one of whose JSON entries something is changed."""

    def build(_: Path) -> bytes:
        tree = json.loads(program_entries()[name])
        change(tree)
        return file_bytes(None, None, changes={name: json.dumps(tree).encode()})

    return build


def entry_of(name: str, data: bytes | Callable[[], bytes]) -> Callable[[Path], bytes]:
    """Return the builder of a .pt2 with that entry, deflated."""

    def build(_: Path) -> bytes:
        content = data() if callable(data) else data
        return file_bytes(None, None, changes={name: content}, method=zipfile.ZIP_DEFLATED)

    return build


def sparse_json(piece: bytes) -> Callable[[], bytes]:
    """60 MB of JSON values, with just enough in between that they do not pack too well."""
    spaces = b"".join(b" " * (i % 97 + 1) + str(i).encode() + b"," for i in range(2000))
    block = piece * (120_000 // len(piece)) + spaces
    return lambda: b"[" + block * (60 * 2**20 // len(block)) + b"0]"


def sizes(value: object) -> Callable[[Path], bytes]:
    """Return the builder of a .pt2 one of whose weights has that size, or whatever is no size."""

    def change(tree: dict[str, object]) -> None:
        tree["config"]["stem.codes"]["tensor_meta"]["sizes"] = [{"as_int": value}, {"as_int": 9}]  # type: ignore[index]

    return changed(WEIGHTS_TABLE, change)


def layout(field: str, value: object) -> Callable[[Path], bytes]:
    def change(tree: dict[str, object]) -> None:
        tree["config"]["stem.codes"]["tensor_meta"][field] = value  # type: ignore[index]

    return changed(WEIGHTS_TABLE, change)


def twice_at_the_end(_: Path) -> bytes:
    """A stamp of very many keys, the last of which stands there twice."""
    keys = ",".join(f'"{i}":0' for i in range(200_000))
    return file_bytes(None, None, changes={"extra/qtool/stamp.json": f'{{{keys},"199999":0}}'.encode()})


BOMBS: tuple[Attack, ...] = (
    refused("zip: a bomb", r"unpacks \d+ bytes to 100000000", bomb),
    refused("zip: thousands of small bombs", r"compressed entries unpack \d+ bytes to 3145728000", many_bombs),
    refused("zip: small bombs below every bound", r"compressed entries unpack", bombs_below_the_bound),
    read("zip: a bomb fifty archives deep", "QT201", nested_bomb),
    refused("zip: directory of too many entries", "claims 50001 entries", too_many_entries),
    read("zip: as many entries as are read", "QT201", many_entries),
)
TWO_MEANINGS: tuple[Attack, ...] = (
    refused("zip: entries share bytes", "overlaps", shared_bytes),
    refused("zip: an entry within another", "overlaps", nested_entries),
    refused("zip: two entries of one name", "two entries are named", lambda _: archive(("a/x", b"1"), ("a/x", b"2"))),
    refused("zip: two names, one case", "but for case", lambda _: archive(("a/x", b"1"), ("a/X", b"2"))),
    refused("zip: a second name", "second name", second_name),
    refused("zip: two sizes", "two sizes 5 and 6 differ", with_central(24, b"\6")),
    refused("zip: two checksums", "contradict", with_central(16, b"\6")),
    refused("zip: two zips", "not where its end record says", lambda _: archive(("a/x", b"1")) + SAMPLE),
    refused("zip: a script in front", "not a zip archive", lambda _: b"#!/bin/sh\n" + SAMPLE),
    refused("zip: bytes behind", "bytes after it", lambda _: SAMPLE + b"\0"),
    refused("zip: a wrong checksum", "damaged", wrong_checksum),
)
_LEADS_ELSEWHERE = ("../../executed", "..", "./x", "a\\..\\x", "C:/x", "x\x1b[2J", "x" * 2000, "\u202etxt")
NAMES: tuple[Attack, ...] = (
    *(refused(f"zip: name {name[:20]!r}", "entry name", named(name)) for name in _LEADS_ELSEWHERE),
    refused("zip: absolute name", "entry name", lambda _: archive(("/etc/passwd", b"x"))),
    refused("zip: name with a zero byte", "entry name", raw_name(b"a/x\0.json")),
    refused("zip: name that is not UTF-8", "is not", raw_name(b"a/\xff\xfe")),
    refused("zip: a link to a file", "link", link("/etc/passwd")),
    refused("zip: a link out of the folder", "link", link("../../secret")),
)
NUMBERS: tuple[Attack, ...] = (
    refused("zip: 65535 entries", "claims 65535 entries", with_end(8, b"\xff\xff\xff\xff")),
    refused("zip: directory elsewhere", "not where its end record says", with_end(16, b"\xff\xff\xff\x7f")),
    refused("zip: two disks", "several parts", with_end(4, b"\1")),
    refused("zip: 2**63 entries", "claims 9223372036854775808", zip64(2**63, None, None)),
    refused("zip: directory of 2**64 - 1 bytes", "not where", zip64(1, 2**64 - 1, None)),
    refused("zip: directory at 2**64 - 1", "not where", zip64(1, None, 2**64 - 1)),
    refused("zip: entry of 2**64 - 1 bytes", "contradict|reaches past", zip64_entry(2**64 - 1, 0)),
    refused("zip: entry at 2**63", "in front|overlaps|lies outside", zip64_entry(5, 2**63)),
    refused("zip: encrypted", "encrypted", with_central(8, b"\1")),
    refused("zip: compressed by method 99", "method 99", with_central(10, b"\x63")),
    refused("zip: long extra field", "ends inside an entry", with_central(30, b"\xff\xff")),
)
PROGRAMS: tuple[Attack, ...] = (
    refused("pt2: JSON nested 10^6 deep", "not valid JSON", entry_of(GRAPH, lambda: b"[" * 10**6)),
    refused("pt2: 60 MB of empty lists", "values could take", entry_of(GRAPH, sparse_json(b"[],"))),
    refused("pt2: 60 MB of empty objects", "values could take", entry_of(WEIGHTS_TABLE, sparse_json(b"{},"))),
    refused("pt2: a number of 10^6 digits", "JSON", entry_of(GRAPH, lambda: b'{"a": ' + b"1" * 10**6 + b"}")),
    refused("pt2: not UTF-8", "JSON", entry_of(GRAPH, b'{"\xff\xfe": 1}')),
    refused("pt2: a table that is a list", "has no 'config'", entry_of(WEIGHTS_TABLE, b"[]")),
    read("pt2: a stamp that is not UTF-8", "QT203", entry_of("extra/qtool/stamp.json", b"\xff\xfe")),
    read("pt2: a stamp of 10^5 deep lists", "QT203", entry_of("extra/qtool/stamp.json", lambda: b"[" * 10**5)),
    read("pt2: a stamp with a key twice, the last of very many", "QT203", twice_at_the_end),
    refused("pt2: size of -1", "'stem.codes' states .* as a size", sizes(-1)),
    refused("pt2: size of 2**63", "'stem.codes' states .* as a size", sizes(2**63)),
    refused("pt2: size of 10**400", "'stem.codes' states .* as a size", sizes(10**400)),
    refused("pt2: size of NaN", "'stem.codes' states .* as a size", sizes(float("nan"))),
    refused("pt2: size of infinity", "'stem.codes' states .* as a size", sizes(float("inf"))),
    refused("pt2: size that is a list", "'stem.codes' states .* as a size", sizes([[]])),
    refused("pt2: size that is text", "'stem.codes' states .* as a size", sizes("4; import os")),
    refused(
        "pt2: strides below 0", "'stem.codes' states .* as a size", layout("strides", [{"as_int": -1}, {"as_int": -9}])
    ),
    refused(
        "pt2: strides of 2**62",
        "does not fit into the 36 bytes",
        layout("strides", [{"as_int": 2**62}, {"as_int": 2**62}]),
    ),
    refused("pt2: offset of 2**63", "'stem.codes' states .* as a size", layout("storage_offset", {"as_int": 2**63})),
    refused("pt2: 10^5 dimensions", "no list of at most 64 sizes", layout("sizes", [{"as_int": 2}] * 10**5)),
    read("pt2: dtype of 10^9", "other 36 bytes", layout("dtype", 10**9)),
)
ATTACKS = BOMBS + TWO_MEANINGS + NAMES + NUMBERS + PROGRAMS
