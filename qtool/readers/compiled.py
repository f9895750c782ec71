"""Packages that AOTInductor compiled: their constants and target, and the marks in their code; nothing is loaded.

The code itself is not understood. What is known of the constants stands in the C++ source beside the library, whose
weights lie in the library, or in tables as a .pt2 has them.
Source: torch/_inductor/codegen/cpp_wrapper_cpu.py (`constants_info_`), torch/_inductor/package/package.py.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from qtool.readers.entries import COMPILED_FOLDER
from qtool.readers.facts import BITS, ModelFacts, Tensor
from qtool.readers.marks import MARK, GraphFacts, collect
from qtool.readers.programs.tables import stored_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qtool.readers.archive import Archive


_CONSTANT: Final = re.compile(
    r"constants_info_\[(\d{1,9})\]\.(dtype|shape|original_fqn|name) = "
    r'(?:cached_torch_dtype_(\w{1,40})|\{([0-9L, ]*)\}|"([^"\n]*)");'
)
_SOURCE: Final = ".wrapper.cpp"
_TARGET: Final = "_metadata.json"
_KEYS: Final = ("AOTI_DEVICE_KEY", "AOTI_MACHINE", "AOTI_CPU_ISA")
_TEXTS: Final = (".cpp", ".so")
_MARK_START: Final = b"qtool 1 "
_MAX_MARK_BYTES: Final = 4096
_MAX_MARKS: Final = 100_000
_MAX_DIMENSIONS: Final = 64
_MAX_SIZE: Final = 2**63 - 1
_MAX_SHOWN: Final = 40


def compiled_marks(archive: Archive) -> GraphFacts:
    """Return the marks that stand as texts in the sources and libraries of a package."""
    texts = [text for name in archive.names if name.startswith(COMPILED_FOLDER) for text in _marks(archive, name)]
    return GraphFacts(collect(texts[:_MAX_MARKS]))


def compiled_model(archive: Archive) -> ModelFacts:
    """Return what a package says of its constants and its target.

    Raises:
        FileFormatError: a table or a target in it is not of the form torch writes.
    """
    sources = [archive.read(name).decode("utf-8", "replace") for name in archive.names if name.endswith(_SOURCE)]
    stored = stored_tensors(archive)
    known = {tensor.name for tensor in stored}
    inside = [tensor for source in sources for tensor in _constants(source) if tensor.name not in known]
    target = " ".join(dict.fromkeys(_target(archive)))
    return ModelFacts(
        producer="AOTInductor",
        form=f"compiled for {target}" if target else "compiled",
        tensors=(*stored, *inside),
        not_understood=("compiled code",),
    )


def _marks(archive: Archive, name: str) -> Iterator[str]:
    """Yield the marks in a source or library, which may lie across two pieces of it."""
    if not name.endswith(_TEXTS):
        return
    kept = b""
    for chunk in archive.chunks(name):
        data = kept + chunk
        # What begins in the last bytes is looked at with the next piece.
        yield from _marks_in(data[: max(0, len(data) - _MAX_MARK_BYTES)], data)
        kept = data[-_MAX_MARK_BYTES:]
    yield from _marks_in(kept, kept)


def _marks_in(starts: bytes, data: bytes) -> Iterator[str]:
    place = starts.find(_MARK_START)
    while place >= 0:
        found = MARK.match(data[place : place + _MAX_MARK_BYTES].decode("latin-1"))
        if found:
            yield found[0]
        place = starts.find(_MARK_START, place + 1)


def _constants(source: str) -> Iterator[Tensor]:
    """Yield the constants that a source states; those of a dtype or shape that is not understood are left out."""
    rows: dict[str, dict[str, str]] = {}
    for index, key, dtype, shape, text in _CONSTANT.findall(source):
        rows.setdefault(index, {})[key] = dtype or shape or text
    for row in rows.values():
        shape = _shape(row.get("shape", ""))
        dtype = row.get("dtype", "")
        if shape is not None and dtype in BITS:
            yield Tensor(name=row.get("original_fqn") or row.get("name", ""), dtype=dtype, shape=shape, place=None)


def _shape(text: str) -> tuple[int, ...] | None:
    words = text.replace("L", "").replace(" ", "").split(",") if text else []
    sizes = tuple(int(word) for word in words if word and len(word) < len(str(_MAX_SIZE)))
    is_possible = len(sizes) == len(words) <= _MAX_DIMENSIONS and math.prod(sizes) <= _MAX_SIZE
    return sizes if is_possible else None


def _target(archive: Archive) -> Iterable[str]:
    for name in archive.names:
        if name.startswith(COMPILED_FOLDER) and name.endswith(_TARGET):
            said = archive.json(name)
            words = [said.get(key) for key in _KEYS] if isinstance(said, dict) else []
            yield from (word[:_MAX_SHOWN] for word in words if isinstance(word, str) and word)
