"""ONNX models with numbers, nesting and paths that no exporter writes; protobuf by hand, field by field."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from tests.attacks.attack import Attack, read, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOAT, INT8, UINT8, INT32 = 1, 3, 2, 6


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    """Return one field: a varint, or a length and bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def claims(number: int, length: int, data: bytes = b"") -> bytes:
    """Return a field that says it has `length` bytes."""
    return varint(number << 3 | 2) + varint(length) + data


def tensor(name: str, dims: tuple[int, ...], dtype: int = INT8, data: bytes | None = None, extra: bytes = b"") -> bytes:
    stored = b"" if data is None else field(9, data)
    return b"".join(field(1, size) for size in dims) + field(2, dtype) + field(8, name) + stored + extra


def outside(location: str, *, offset: int | str = 0, length: int | str = 16) -> bytes:
    """Return the fields of a tensor whose data lie in another file."""
    words = {"location": location, "offset": str(offset), "length": str(length)}
    return b"".join(field(13, field(1, key) + field(2, word)) for key, word in words.items()) + field(14, 1)


def node(op: str, inputs: tuple[str, ...], outputs: tuple[str, ...], extra: bytes = b"") -> bytes:
    ends = [field(1, name) for name in inputs] + [field(2, name) for name in outputs]
    return b"".join(ends) + field(4, op) + extra


def graph(*parts: bytes) -> bytes:
    return b"".join(parts) + field(2, "g")


def model(*parts: bytes, extra: bytes = b"") -> bytes:
    """Return a model of one graph with these fields."""
    return field(1, 8) + field(2, "corpus") + field(8, field(1, "") + field(2, 17)) + field(7, graph(*parts)) + extra


CONV = field(1, node("ConvInteger", ("x", "w"), ("y",)))


def weight(*args: object, **fields: object) -> bytes:
    return field(5, tensor("w", *args, **fields))  # type: ignore[arg-type]


def with_weight(
    dims: tuple[int, ...] = (4, 4), dtype: int = INT8, data: bytes | None = b"\1" * 16, extra: bytes = b""
) -> Callable[[Path], bytes]:
    return lambda _: model(CONV, weight(dims, dtype, data, extra))


def nested(levels: int) -> bytes:
    """Return a graph with an If in it, whose branch has an If in it, and so on."""
    inner = graph(CONV)
    for _ in range(levels):
        inner = graph(field(1, node("If", ("c",), ("y",), field(5, field(1, "then_branch") + field(6, inner)))))
    return inner


def many_of(part: bytes, count: int) -> Callable[[Path], bytes]:
    return lambda _: model(part * count)


def function_that_calls_itself(_: Path) -> bytes:
    own = field(1, "f") + field(7, node("f", ("x",), ("y",), field(7, "me"))) + field(10, "me")
    return model(field(1, node("f", ("x",), ("y",), field(7, "me"))), extra=field(25, own))


def functions_that_double(_: Path) -> bytes:
    """Each of thirty functions calls the next one twice: 2^30 nodes if they were written out."""

    def body(i: int) -> bytes:
        called = f"f{i + 1}"
        return field(7, node(called, ("x",), ("t",), field(7, "me"))) + field(
            7, node(called, ("t",), ("y",), field(7, "me"))
        )

    functions = b"".join(field(25, field(1, f"f{i}") + body(i) + field(10, "me")) for i in range(30))
    return model(field(1, node("f0", ("x",), ("y",), field(7, "me"))), extra=functions)


def scales(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def quantized(scale: bytes, zero_point: bytes = b"\0", *, zero_dtype: int = INT8, axis: int | None = None) -> bytes:
    attribute = b"" if axis is None else field(5, field(1, "axis") + field(3, axis) + field(20, 2))
    return model(
        field(1, node("DequantizeLinear", ("w", "s", "z"), ("wf",), attribute)),
        field(1, node("Conv", ("x", "wf"), ("y",))),
        weight((4, 4, 1, 1), INT8, b"\1" * 16),
        field(5, tensor("s", (len(scale) // 4,), FLOAT, scale)),
        field(5, tensor("z", (len(zero_point) // (4 if zero_dtype == INT32 else 1),), zero_dtype, zero_point)),
    )


def secret_above(folder: Path) -> None:
    (folder.parent / "secret").write_bytes(b"\7" * 64)


def link_to(target: str, name: str = "weights.bin") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        secret_above(folder)
        (folder / name).symlink_to(target)

    return make


def linked_folder(folder: Path) -> None:
    secret_above(folder)
    (folder / "data").symlink_to("..")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "weights.bin")


def short_file(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"\7" * 8)


def data_at(location: str, **where: object) -> Callable[[Path], bytes]:
    return with_weight(data=None, extra=outside(location, **where))  # type: ignore[arg-type]


EXTERNAL: tuple[Attack, ...] = (
    read("onnx: data above the folder", "QT111", data_at("../secret"), beside=secret_above),
    read("onnx: data above, through a folder", "QT111", data_at("data/../../secret"), beside=secret_above),
    read("onnx: data at an absolute path", "QT111", data_at("/etc/passwd")),
    read("onnx: data behind backslashes", "QT11[12]", data_at("..\\secret"), beside=secret_above),
    read("onnx: data through a link", "QT111", data_at("weights.bin"), beside=link_to("../secret")),
    read("onnx: data through an absolute link", "QT111", data_at("weights.bin"), beside=link_to("/etc/passwd")),
    read("onnx: data through a linked folder", "QT111", data_at("data/secret"), beside=linked_folder),
    read("onnx: data through a link to itself", "QT11[12]", data_at("weights.bin"), beside=link_to("weights.bin")),
    read("onnx: data in a pipe", "QT11[12]", data_at("weights.bin"), beside=pipe),
    read("onnx: data in a device", "QT111", data_at("/dev/zero")),
    read("onnx: data in a folder", "QT11[12]", data_at("."), beside=None),
    read("onnx: data that is not there", "QT112", data_at("weights.bin")),
    read("onnx: data in a file with a zero byte", "QT11[12]", data_at("weights\0.bin")),
    read("onnx: data in a file of 10^5 letters", "QT11[12]", data_at("w" * 10**5)),
    read("onnx: data in a file of no name", "QT11[12]", data_at("")),
    read("onnx: less data than it says", "QT112", data_at("weights.bin"), beside=short_file),
    read("onnx: data at 2**63", "QT112", data_at("weights.bin", offset=2**63), beside=short_file),
    read("onnx: data at -1", "QT11|damaged|outside", data_at("weights.bin", offset=-1), beside=short_file),
    read("onnx: data of 10**400 bytes", "QT11", data_at("weights.bin", length=10**400), beside=short_file),
    read("onnx: data of nan bytes", "QT11", data_at("weights.bin", length="nan"), beside=short_file),
    read("onnx: the model as its own data", "QT2", data_at("model", length=16)),
)
NUMBERS: tuple[Attack, ...] = (
    refused("onnx: graph of 2**63 bytes", r"no(t a zip| file)", lambda _: field(1, 8) + claims(7, 2**63 - 1, b"abc")),
    refused("onnx: node of more bytes than there are", "damaged", lambda _: model(claims(1, 2**31, b"abc"))),
    refused("onnx: a number of eleven bytes", "damaged", lambda _: model(b"\x08" + b"\xff" * 11)),
    refused("onnx: group of protobuf", "damaged", lambda _: model(b"\x0b" * 100)),
    refused("onnx: size of -1", r"sizes that none can have", with_weight((-1, 4))),
    refused("onnx: size of 2**62", r"sizes that none can have", with_weight((2**62, 4))),
    refused("onnx: sizes whose product overflows", r"sizes that none can have", with_weight((2**32, 2**32, 2**32))),
    refused("onnx: 10^6 dimensions", r"more than \d+ parts", with_weight(extra=field(1, b"\2" * 10**6))),
    refused("onnx: more than is stored", r"need 160000", with_weight((400, 400))),
    refused("onnx: less than is stored", r"need 4;", with_weight((2, 2))),
    read("onnx: dtype of 99", "QT2", with_weight(dtype=99)),
    read("onnx: dtype of 2**63", "QT2", with_weight(dtype=2**63)),
    read("onnx: scale of NaN", "QT40|QT2", lambda _: quantized(scales(float("nan")))),
    read("onnx: scale of infinity", "QT40|QT2", lambda _: quantized(scales(float("inf")))),
    read("onnx: scale of -0", "QT40|QT2", lambda _: quantized(scales(-0.0))),
    read("onnx: denormal scale", "QT40|QT2", lambda _: quantized(scales(1e-45))),
    read("onnx: axis of 10^9", "QT40|QT2", lambda _: quantized(scales(1, 2, 3, 4), b"\0" * 4, axis=10**9)),
    read("onnx: axis of -99", "QT40|QT2", lambda _: quantized(scales(1, 2, 3, 4), b"\0" * 4, axis=-99)),
    read("onnx: three scales for four channels", "QT40|QT2", lambda _: quantized(scales(1, 2, 3), b"\0" * 3, axis=0)),
    read(
        "onnx: zero point of another dtype",
        "QT40|QT2",
        lambda _: quantized(scales(1), b"\xff\xff\xff\x7f", zero_dtype=INT32),
    ),
    read(
        "onnx: names that are not UTF-8", "QT2", lambda _: model(field(1, field(1, b"\xff\xfe") + field(4, b"Con\xff")))
    ),
    read(
        "onnx: names that move the cursor",
        r"QT2",
        lambda _: model(field(1, node("Conv\x1b[2J", ("x", "w"), ("y",))), weight((4, 4, 1, 1))),
    ),
    read(
        "onnx: a stamp that is not UTF-8",
        "QT203",
        lambda _: model(extra=field(14, field(1, "qtool.stamp") + field(2, b"\xff"))),
    ),
)
ENDLESS: tuple[Attack, ...] = (
    read("onnx: graphs 100 deep", "QT2", lambda _: field(1, 8) + field(7, nested(100))),
    refused("onnx: graphs 10^4 deep", r"nested deeper", lambda _: field(1, 8) + field(7, nested(3000))),
    read("onnx: a function that calls itself", "QT2", function_that_calls_itself),
    read("onnx: functions that double", "QT2", functions_that_double),
    refused("onnx: 10^7 empty nodes", "parts", many_of(field(1, b""), 10**7)),
    refused("onnx: 10^5 nodes", "more parts than are read", many_of(CONV, 10**5)),
    refused(
        "onnx: 10^5 weights of one name", "more parts than are read", many_of(weight((4, 4), INT8, b"\1" * 16), 10**5)
    ),
    read("onnx: a node that reads itself", "QT2", lambda _: model(field(1, node("QLinearConv", ("y",) * 9, ("y",))))),
    refused(
        "onnx: 10^5 dequantizes in a row",
        "more parts than are read",
        lambda _: model(*(field(1, node("DequantizeLinear", (f"t{i}", "s"), (f"t{i + 1}",))) for i in range(10**5))),
    ),
    refused("onnx: a node of 10^6 inputs", "parts", lambda _: model(field(1, node("Concat", ("x",) * 10**6, ("y",))))),
    read(
        "onnx: 10^6 numbers for eight bytes of scale",
        "QT2|QT4",
        lambda _: model(CONV, field(5, tensor("s", (10**6,), FLOAT, None, field(4, b"\0" * 4 * 10**6)))),
    ),
)
ATTACKS: tuple[Attack, ...] = (*EXTERNAL, *NUMBERS, *ENDLESS)
