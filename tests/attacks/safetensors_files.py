"""Files of safetensors whose header lies: eight bytes of length, JSON, data."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

from tests.attacks.attack import Attack, read, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = b"\1" * 64


def file(header: object, data: bytes = DATA, *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", (len(text) if length is None else length) % 2**64) + text + data


def row(
    dtype: object = "F32", shape: object = (4, 4), start: object = 0, end: object = 64, **more: object
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end], **more}


def of(header: object, data: bytes = DATA, **fields: int) -> Callable[[Path], bytes]:
    return lambda _: file(header, data, **fields)


def one(*args: object, **fields: object) -> Callable[[Path], bytes]:
    """Return the builder of a file with one tensor, whose row has these words."""
    return of({"w": row(*args, **fields)})


def many(count: int) -> Callable[[Path], bytes]:
    return lambda _: file({f"w{i}": row("I8", [1], i, i + 1) for i in range(count)}, b"\1" * count)


WRONG: dict[str, Callable[[Path], bytes]] = {
    "header of 2**64 - 1 bytes": of({}, length=-1),
    "header of 2**63 bytes": of({"w": row()}, length=2**63),
    "header of 99 MB that are not there": of({"w": row()}, length=99 * 10**6),
    "header one byte short": lambda _: file({"w": row()}, length=len(json.dumps({"w": row()})) - 1),
    "header nested 10^6 deep": of(b'{"a":' * 10**6),
    "header of 60 MB of empty objects": lambda _: file(b'{"a":[' + b"{}," * (20 * 2**20) + b"{}]}"),
    "a number of 10^6 digits": of(b'{"w":{"dtype":"F32","shape":[' + b"9" * 10**6 + b'],"data_offsets":[0,64]}}'),
    "not UTF-8": of(b'{"\xff\xfe":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}'),
    "a name twice": of(b'{"w":%s,"w":%s}' % ((json.dumps(row()).encode(),) * 2)),
    "a header that is a list": of([row()]),
    "a row that is text": of({"w": "F32"}),
    "a row without offsets": of({"w": {"dtype": "F32", "shape": [4, 4]}}),
    "shape of -1": one("F32", [-4, 4]),
    "shape of 2**63": one("F32", [2**63, 2**63]),
    "shape of NaN": one("F32", [float("nan"), 4]),
    "shape of 1e400": of(b'{"w":{"dtype":"F32","shape":[1e400],"data_offsets":[0,64]}}'),
    "shape that is text": one("F32", "44"),
    "shape of true": one("F32", [True, 16]),
    "shape of 10^5 dimensions": one("F32", [1] * 10**5),
    "offsets below 0": one("F32", (4, 4), -64, 0),
    "offsets swapped": one("F32", (4, 4), 64, 0),
    "offsets past the end": one("F32", (4, 4), 2**40, 2**40 + 64),
    "offsets of 2**64": one("F32", (4, 4), 0, 2**64),
    "offsets that are text": one("F32", (4, 4), "0", "64"),
    "three offsets": of({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 32, 64]}}),
    "more bytes than the shape has": one("F32", (4, 3)),
    "fewer bytes than the shape has": one("F32", (40, 40)),
    "tensors that overlap": of({"a": row("F32", (3, 4), 0, 48), "b": row("F32", (3, 4), 16, 64)}),
    "bytes that belong to none": of({"a": row("F32", (2, 4), 0, 32)}),
}
ATTACKS: tuple[Attack, ...] = (
    *(refused(f"safetensors: {what}", "safetensors", build) for what, build in WRONG.items()),
    refused(
        "safetensors: 10^6 tensors", "values could take", lambda _: file(b'{"w":[' + b"0," * 10**7 + b"0]}"), slow=True
    ),
    refused("safetensors: 10^5 tensors", "100000 tensors; at most 50000 are read", many(10**5), slow=True),
    read("safetensors: as many tensors as are read", "QT210", many(50_000), slow=True),
    read("safetensors: dtype of none", "QT2", one("__import__('os')", (64,))),
    read("safetensors: a name that moves the cursor", r"QT201|QT210", of({"\x1b[2J\x07": row()})),
    read("safetensors: metadata that is no text", "QT2", of({"__metadata__": {"a": [1]}, "w": row()})),
    read(
        "safetensors: metadata with a stamp that is none",
        "QT2",
        of({"__metadata__": {"qtool.stamp": "{"}, "w": row()}),
    ),
)
