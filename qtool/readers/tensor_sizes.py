"""How many bytes of each dtype a .pt2 holds, from its tables of weights and constants alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from qtool.errors import FileFormatError
from qtool.readers.program_risks import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.archive import Archive

_TABLES = re.compile(r"(?P<folder>data/(?:weights|constants)/)[^/]*_config\.json")
_ARRAYS = re.compile(r"qtool/.+\.npy")

_SCALAR_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""Source: torch/_export/serde/schema.py, ScalarType (schema version 8)."""

_NPY_HEADER = re.compile(
    rb"\x93NUMPY[\x01-\x03]\x00(?:..|....)\{'descr': '[<>|=]?(?P<kind>[a-zA-Z])(?P<bytes>\d+)'", re.S
)
_NPY_KINDS = {"i": "int", "u": "uint", "f": "float", "b": "bool"}
_NPY_HEADER_BYTES = 128


def bytes_by_dtype(archive: Archive) -> tuple[tuple[str, int], ...]:
    """Return (dtype, bytes in the file), most bytes first; tensors that share their bytes count once.

    Raises:
        FileFormatError: a table is not of the form torch writes, or names an entry the archive lacks.

    Example:
        >>> bytes_by_dtype(archive)
        (('int8', 4612416), ('float32', 341504), ('int32', 133968))
    """
    entries: dict[str, str] = {}
    for name in archive.names:
        table = _TABLES.fullmatch(name)
        if table:
            entries.update(_payloads(archive, name, table["folder"]))
        elif _ARRAYS.fullmatch(name):
            entries[name] = _array_dtype(archive, name)
    sizes: Counter[str] = Counter()
    for name, dtype in entries.items():
        sizes[dtype] += archive.size(name)
    return tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def _payloads(archive: Archive, table: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield (entry, dtype) for each row of a table of weights or constants."""
    content = read_json(archive, table)
    rows = content.get("config") if isinstance(content, dict) else None
    if not isinstance(rows, dict):
        msg = f"{archive.where}: entry {table!r} has no 'config' with a row for each tensor"
        raise FileFormatError(msg)
    for row in rows.values():
        path = row.get("path_name") if isinstance(row, dict) else None
        meta = row.get("tensor_meta") if isinstance(row, dict) else None
        if not isinstance(path, str):
            msg = f"{archive.where}: entry {table!r} has a row without 'path_name'"
            raise FileFormatError(msg)
        if folder + path in archive.names and not archive.size(folder + path) and _num_elements(meta):
            # torch would allocate them, and fill them with zeros.
            msg = f"{archive.where}: entry {folder + path!r} is empty, and {table!r} says that it holds a tensor"
            raise FileFormatError(msg)
        code = meta.get("dtype") if isinstance(meta, dict) else None
        yield folder + path, _SCALAR_TYPES.get(code, "other") if isinstance(code, int) else "other"


def _num_elements(meta: object) -> int:
    """Return how many elements the record of a tensor states; 1 where it states no sizes."""
    sizes = meta.get("sizes") if isinstance(meta, dict) else None
    numbers = (
        [size.get("as_int") if isinstance(size, dict) else None for size in sizes] if isinstance(sizes, list) else []
    )
    return math.prod(number if isinstance(number, int) else 1 for number in numbers)


def _array_dtype(archive: Archive, name: str) -> str:
    """Return the dtype a .npy entry states in its first bytes."""
    header = next(archive.chunks(name), b"")[:_NPY_HEADER_BYTES]
    found = _NPY_HEADER.match(header)
    if not found:
        return "other"
    kind, num_bits = _NPY_KINDS.get(found["kind"].decode()), 8 * int(found["bytes"])
    return "bool" if kind == "bool" else f"{kind}{num_bits}" if kind else "other"
