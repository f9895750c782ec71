"""The tensors of a .pt2, from its tables of weights and constants: where each lies, and of what shape."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import BITS, Place, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.archive import Archive

SCALAR_TYPES: Final = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""Source: torch/_export/serde/schema.py, ScalarType (schema version 8)."""

_TABLES: Final = re.compile(r"(?P<folder>data/(?:weights|constants)/)[^/]*_config\.json")
_ARRAYS: Final = re.compile(r"qtool/.+\.npy")
_NPY_HEADER: Final = re.compile(
    rb"\x93NUMPY[\x01-\x03]\x00(?:..|....)\{'descr': '[<>|=]?(?P<kind>[a-zA-Z])(?P<bytes>\d{1,2})', "
    rb"'fortran_order': (?P<fortran>True|False), 'shape': \((?P<shape>[0-9, ]*)\), \} *\n",
    re.S,
)
_NPY_KINDS: Final = {"i": "int", "u": "uint", "f": "float", "b": "bool"}
_MAX_NPY_HEADER: Final = 1024
_MAX_DIMENSIONS: Final = 64
"""torch and numpy allow no more."""
_MAX_SIZE: Final = 2**63 - 1


def stored_tensors(archive: Archive) -> tuple[Tensor, ...]:
    """Return every tensor of a .pt2, in the order of its tables.

    Raises:
        FileFormatError: a table is not of the form torch writes, or a tensor does not fit into the entry it names.

    Example:
        >>> stored_tensors(archive)[0]
        Tensor(name='conv.int8.weight', dtype='int8', shape=(8, 3, 3, 3), place=Place(part='data/weights/weight_0', ...
    """
    found: list[Tensor] = []
    for name in archive.names:
        table = _TABLES.fullmatch(name)
        if table:
            found += _rows(archive, name, table["folder"])
        elif _ARRAYS.fullmatch(name):
            found.append(_array(archive, name))
    return tuple(found)


def _rows(archive: Archive, table: str, folder: str) -> Iterator[Tensor]:
    content = archive.json(table)
    rows = content.get("config") if isinstance(content, dict) else None
    if not isinstance(rows, dict):
        msg = f"{archive.where}: entry {table!r} has no 'config' with a row for each tensor"
        raise FileFormatError(msg)
    for name, row in rows.items():
        path = row.get("path_name") if isinstance(row, dict) else None
        if not isinstance(path, str):
            msg = f"{archive.where}: entry {table!r} has a row without 'path_name'"
            raise FileFormatError(msg)
        meta = row.get("tensor_meta")
        known = isinstance(meta, dict) and isinstance(meta.get("dtype"), int) and meta["dtype"] in SCALAR_TYPES
        if not known:
            yield _unknown(archive, name, folder + path)
        else:
            yield _tensor(archive, name, None if row.get("use_pickle") else folder + path, meta)


def _tensor(archive: Archive, name: str, entry: str | None, meta: dict[str, Any]) -> Tensor:
    """Return the tensor of a row; one that is pickled in its entry (None here) has no bytes that are read."""
    dtype = SCALAR_TYPES[meta["dtype"]]
    try:
        shape = _numbers(meta, "sizes")
        strides = _numbers(meta, "strides")
        offset = _number(meta.get("storage_offset", {"as_int": 0}))
    except ValueError as error:
        msg = f"{archive.where}: the record of tensor {name[:80]!r} states {error}"
        raise FileFormatError(msg) from error
    place = None if entry is None else _place(archive, name, entry, BITS[dtype] // 8, (shape, strides, offset))
    return Tensor(
        name=name, dtype=dtype, shape=shape, place=place, strides=None if _is_c_order(shape, strides) else strides
    )


def _unknown(archive: Archive, name: str, entry: str) -> Tensor:
    """Return a tensor of which only the bytes are known."""
    return Tensor(name=name, dtype="other", shape=(), place=Place(part=entry, offset=0, num_bytes=archive.size(entry)))


def _numbers(meta: dict[str, Any], key: str) -> tuple[int, ...]:
    values = meta.get(key)
    if not isinstance(values, list) or len(values) > _MAX_DIMENSIONS:
        msg = f"no list of at most {_MAX_DIMENSIONS} {key}"
        raise ValueError(msg)
    return tuple(_number(each) for each in values)


def _number(value: object) -> int:
    number = value.get("as_int") if isinstance(value, dict) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_SIZE:
        msg = f"{str(value)[:60]} as a size; it is a whole number from 0 on"
        raise ValueError(msg)
    return number


def _is_c_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= max(size, 1)
    return True


def _place(
    archive: Archive, name: str, entry: str, num_bytes: int, layout: tuple[tuple[int, ...], tuple[int, ...], int]
) -> Place:
    shape, strides, offset = layout
    is_empty = 0 in shape
    last = 0 if is_empty else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
    place = Place(part=entry, offset=offset * num_bytes, num_bytes=last * num_bytes)
    if len(shape) != len(strides) or place.offset + place.num_bytes > archive.size(entry):
        msg = (
            f"{archive.where}: tensor {name[:80]!r} of sizes {list(shape)} and strides {list(strides)} does not fit "
            f"into the {archive.size(entry)} bytes of entry {entry!r}"
        )
        raise FileFormatError(msg)
    return place


def _array(archive: Archive, name: str) -> Tensor:
    """Return the tensor in a .npy entry, from its header alone; one of another form has no place."""
    found = _NPY_HEADER.match(next(archive.chunks(name), b"")[:_MAX_NPY_HEADER])
    if not found:
        return _unknown(archive, name, name)
    kind, num_bits = _NPY_KINDS.get(found["kind"].decode()), 8 * int(found["bytes"])
    dtype = "bool" if kind == "bool" else f"{kind}{num_bits}" if kind else "other"
    shape = tuple(int(size) for size in found["shape"].decode().replace(" ", "").split(",") if size)
    num_bytes = math.prod(shape) * num_bits // 8
    is_plain = dtype in BITS and found["fortran"] == b"False" and found.end() + num_bytes == archive.size(name)
    if not is_plain:
        return _unknown(archive, name, name)
    return Tensor(name=name, dtype=dtype, shape=shape, place=Place(part=name, offset=found.end(), num_bytes=num_bytes))
