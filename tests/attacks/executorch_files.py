"""ExecuTorch programs whose offsets lie: a flatbuffer is nothing but offsets."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.attacks.attack import Attack, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def buffer(root: int, body: bytes, *, identifier: bytes = b"ET12") -> bytes:
    """Return a flatbuffer whose root table is said to stand at `root`; the body begins at byte 8."""
    return struct.pack("<I", root & 0xFFFFFFFF) + identifier + body


def table(*offsets: int, vtable_at: int | None = None, size: int | None = None) -> bytes:
    """Return a table with a vtable of these offsets in front, to be placed at byte 8; the table begins behind it."""
    vtable = struct.pack("<HH", 4 + 2 * len(offsets) if size is None else size, 4) + b"".join(
        struct.pack("<H", offset) for offset in offsets
    )
    back = len(vtable) if vtable_at is None else vtable_at
    return vtable + struct.pack("<i", back)


def at(root: int, body: bytes = b"\0" * 64) -> Callable[[Path], bytes]:
    return lambda _: buffer(root, body)


def plan_vector(length: int, *first: int) -> Callable[[Path], bytes]:
    """Return the builder of a program whose vector of plans has that length and these first offsets."""

    def build(_: Path) -> bytes:
        vtable = struct.pack("<HHHH", 8, 12, 4, 8)  # version, execution_plan
        own = struct.pack("<iII", len(vtable), 0, 4)
        vector = struct.pack("<I", length) + b"".join(struct.pack("<I", offset & 0xFFFFFFFF) for offset in first)
        return buffer(8 + len(vtable), vtable + own + vector)

    return build


EMPTY = struct.pack("<HHi", 4, 4, 4)


def nested(_: Path) -> bytes:
    """Each plan's offset leads back to the vector itself."""
    return plan_vector(1000, *(-4 * i - 4 for i in range(1000)))(_)


def with_header(**fields: int) -> Callable[[Path], bytes]:
    """Return the builder of a file with ExecuTorch's extended header, whose numbers may be any."""
    sizes = {"length": 24, "program": 64, "segments": 128} | fields

    def build(_: Path) -> bytes:
        header = b"eh00" + struct.pack("<IQQ", sizes["length"], sizes["program"] % 2**64, sizes["segments"] % 2**64)
        return buffer(32, header + b"\0" * 96)

    return build


ATTACKS: tuple[Attack, ...] = tuple(
    refused(f"executorch: {what}", "ExecuTorch", build)
    for what, build in {
        "root at 2**32 - 1": at(2**32 - 1),
        "root at itself": at(0),
        "root before the end": at(68),
        "nothing behind the identifier": lambda _: b"\x08\0\0\0ET12",
        "vtable far in front": lambda _: buffer(16, b"\0" * 8 + struct.pack("<i", 2**31 - 1) + b"\0" * 32),
        "vtable far behind": lambda _: buffer(16, b"\0" * 8 + struct.pack("<i", -(2**31)) + b"\0" * 32),
        "vtable of 65535 bytes": lambda _: buffer(16, table(4, 8, size=65535) + b"\0" * 32),
        "vtable of no bytes": lambda _: buffer(16, table(4, 8, size=0) + b"\0" * 32),
        "fields outside of the table": lambda _: buffer(16, table(65535, 65535) + b"\0" * 32),
        "2**32 - 1 plans": plan_vector(2**32 - 1),
        "10^8 plans": plan_vector(10**8, 8),
        "plans at themselves": plan_vector(4, 0, 0, 0, 0),
        "plans in front": plan_vector(2, -8, -4),
        "plans that hold one another": nested,
        "extended header of 2**31 bytes": with_header(length=2**31),
        "program of 2**64 - 1 bytes": with_header(program=-1),
        "segments at 2**63": with_header(segments=2**63),
    }.items()
)
