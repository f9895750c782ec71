"""Changes of a valid file that its format's reader must take: of its bytes, and of what they mean.

What they mean: an entry of a zip has another content, its checksum right; a value of JSON is another; an opcode of a
pickle, a word of code, a length of protobuf, an offset of a flatbuffer is another.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.attacks.onnx_models import varint
from tests.readers.sample_files import zip_bytes
from tests.stamp.strategies import json_values

Draw = Callable[[st.SearchStrategy[Any]], Any]
Change = Callable[[Draw, bytes], bytes]

NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62,
                           2**63 - 1, 2**63, 2**64 - 1])  # fmt: skip
WORDS = json_values | st.sampled_from([10**400, -1, 2**63, 2**1000, 1e308, -0.0, float("nan"), float("inf"), "\ud800",
                                       "\x1b[2J", "../x", "9**9**9", [[[]]] * 9])  # fmt: skip


def position(draw: Draw, length: int) -> int:
    return draw(st.integers(0, max(0, length - 1)))


def bytes_changed(draw: Draw, data: bytes) -> bytes:
    """Write a number over some bytes, take bytes out, or put some in, once or twice."""
    for _ in range(draw(st.integers(1, 2))):
        at = position(draw, len(data))
        match draw(st.integers(0, 4)):
            case 0:
                width = draw(st.sampled_from([1, 2, 4, 8]))
                number = (draw(NUMBERS) % 256**width).to_bytes(width, "little")
                data = data[:at] + number + data[at + width :]
            case 1:
                data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + draw(st.integers(1, 64)) :]
            case 3:
                data = data[:at] + draw(st.binary(min_size=1, max_size=16)) + data[at:]
            case _:
                other, size = position(draw, len(data)), draw(st.integers(1, 64))
                data = data[:at] + data[other : other + size] + data[at:]
    return data


def places(tree: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON tree."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def with_value(tree: Any, path: tuple[Any, ...], value: object) -> object:
    if not path:
        return value
    tree[path[0]] = with_value(tree[path[0]], path[1:], value)
    return tree


_places = cache(lambda text: places(json.loads(text)))


def json_changed(draw: Draw, data: bytes) -> bytes:
    """Replace one value by another, or by one from elsewhere in the tree."""
    found, tree = _places(data), json.loads(data)
    path = draw(st.sampled_from(found))
    value = draw(WORDS)
    if draw(st.booleans()):
        value = tree
        for key in draw(st.sampled_from(found)):
            value = value[key]
        value = json.loads(json.dumps(value))
    return json.dumps(with_value(tree, path, value)).encode()


@cache
def _opcodes(data: bytes) -> list[int]:
    """Return where each opcode of a row of pickles begins, and where the last one ends."""
    stream, found = io.BytesIO(data), []
    try:
        while stream.tell() < len(data):
            start = stream.tell()
            found += [start + at for _, _, at in pickletools.genops(stream)]
    except ValueError:
        pass
    return [*found, stream.tell()]


OPCODES = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])


def pickle_changed(draw: Draw, data: bytes) -> bytes:
    """Change an opcode, leave it out, say it twice, move it, or change its argument."""
    starts = _opcodes(data)
    if len(starts) < 2:
        return bytes_changed(draw, data)
    i = position(draw, len(starts) - 1)
    first, end = starts[i], starts[i + 1]
    match draw(st.integers(0, 4)):
        case 0:
            return data[:first] + draw(OPCODES) + data[first + 1 :]
        case 1:
            return data[:first] + data[end:]
        case 2:
            return data[:end] + data[first:end] * draw(st.sampled_from([1, 2, 300])) + data[end:]
        case 3:
            to = starts[position(draw, len(starts) - 1)]
            return data[:to] + data[first:end] + data[to:]
    return data[: first + 1] + bytes_changed(draw, data[first + 1 : end]) + data[end:]


_TOKEN = re.compile(rb"\s+|\w+|\"[^\"]*\"|.", re.S)
TOKENS = st.sampled_from([
    *b"( ) [ ] \" ' \\ : , = . - self CONSTANTS 1e999 torch ops quantized def class return inf annotate".split(),
    b"\n", b"    ", b"9" * 5000, b"\xff", b"\0",
])  # fmt: skip
_tokens = cache(_TOKEN.findall)


def code_changed(draw: Draw, data: bytes) -> bytes:
    """Replace a word by another, leave it out, or say some again."""
    words = list(_tokens(data))
    at = position(draw, len(words))
    match draw(st.integers(0, 2)):
        case 0:
            words[at : at + 1] = [draw(TOKENS)]
        case 1:
            del words[at : at + draw(st.integers(1, 8))]
        case _:
            words[at:at] = words[at : at + draw(st.integers(1, 30))] * draw(st.sampled_from([1, 2, 40]))
    return b"".join(words)


def entry_changed(draw: Draw, data: bytes) -> bytes:
    """Change the content of an entry as what it is; its checksum is right again."""
    entries = _entries(data)
    name = draw(st.sampled_from([*entries]))
    return zip_bytes({**entries, name: _change_of(name)(draw, entries[name])}, root="")


def _change_of(name: str) -> Change:
    if name.endswith(".json"):
        return json_changed
    if name.endswith((".pkl", "/byteorder")):
        return pickle_changed
    return code_changed if name.endswith(".py") else bytes_changed


def entries_changed(draw: Draw, data: bytes) -> bytes:
    """Leave an entry out, empty it, rename it, or give it the content of another."""
    entries = dict(_entries(data))
    name, other = draw(st.sampled_from([*entries])), draw(st.sampled_from([*entries]))
    content = entries.pop(name)
    match draw(st.integers(0, 4)):
        case 0:
            pass
        case 1:
            entries[name] = b""
        case 2:
            entries[draw(st.sampled_from([f"{name}x", f"{name}/x", "x", f"{other}2", name.upper()]))] = content
        case 3:
            entries[name] = entries.get(other, content)
        case _:
            entries[other], entries[name] = content, entries.get(other, b"")
    return zip_bytes(entries, root="")


@cache
def _entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@cache
def _numbers(data: bytes) -> list[tuple[int, int]]:
    """Return where the varints of a protobuf message stand: tags, lengths, values, also of messages within."""
    found, left = [], [(0, len(data))]
    while left:
        start, end = left.pop()
        inner: list[tuple[int, int]] = []
        while start < end:
            (tag, at), inner_start = _varint(data, start), start
            value, behind = _varint(data, at)
            kind, length = tag & 7, 0 if tag & 7 == 0 else value
            if kind not in (0, 2) or behind + length > end:
                break
            inner += [(inner_start, at), (at, behind)]
            if kind == 2 and length > 1:
                left.append((behind, behind + length))
            start = behind + length
        found += inner
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    return 7, at


def protobuf_changed(draw: Draw, data: bytes) -> bytes:
    """Make a tag, a length or a value another number; what is behind it stays."""
    start, end = draw(st.sampled_from(_numbers(data)))
    number = draw(NUMBERS | st.integers(0, 300))
    return data[:start] + varint(number) + data[end:]


def header_changed(draw: Draw, data: bytes) -> bytes:
    """Change the JSON in front of safetensors' data, or the number that says how long it is."""
    (size,) = struct.unpack_from("<Q", data)
    if draw(st.integers(0, 4)) == 0:
        return struct.pack("<Q", draw(NUMBERS | st.integers(size - 9, size + 9))) + data[8:]
    header = json_changed(draw, data[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def offsets_changed(draw: Draw, data: bytes) -> bytes:
    """Make one aligned number of a flatbuffer another one, or another one's value."""
    width = draw(st.sampled_from([2, 4, 4, 4, 8]))
    at = position(draw, len(data) // width) * width
    if draw(st.booleans()):
        number = (draw(NUMBERS) % 256**width).to_bytes(width, "little")
    else:
        (old,) = struct.unpack_from("<I", data.ljust(at + 4, b"\0"), at)
        number = ((old + draw(st.integers(-64, 64))) % 256**width).to_bytes(width, "little")
    return data[:at] + number + data[at + width :]


def changes_of(data: bytes) -> tuple[Change, ...]:
    """Return the changes that mean something in a file, told by its content, and that of its bytes."""
    if data[:2] == b"PK":
        return entry_changed, entry_changed, entry_changed, entries_changed, bytes_changed
    if data[:1] == b"\x80":
        return pickle_changed, pickle_changed, bytes_changed
    if data[4:6] == b"ET":
        return offsets_changed, offsets_changed, bytes_changed
    if data[8:9] == b"{":
        return header_changed, header_changed, bytes_changed
    return protobuf_changed, protobuf_changed, bytes_changed


@st.composite
def mutations(draw: Draw, data: bytes) -> bytes:
    """Draw a changed form of a valid file."""
    return draw(st.sampled_from(changes_of(data)))(draw, data)
