"""Reads the marks in the code of a TorchScript archive, as text; nothing is loaded.

    if torch.ne(ops.prim.dtype(x), 13):
      ops.prim.RaiseException("qtool 1 node name=conv1 ...", "builtins.RuntimeError")

Files for the lite interpreter hold the same texts in `bytecode.pkl` too, and may hold them there alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.marks import MARK, GraphFacts, collect
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.archive import Archive

_BYTECODE: Final = "bytecode.pkl"
_INT8_LAYER: Final = re.compile(r"\bops\.quantized\.(?:conv|linear)(?!\w*(?:prepack|unpack))\w*\(")


def script_facts(archive: Archive) -> GraphFacts:
    """Return the marks in a TorchScript archive, and how many of its int8 layers have none."""
    code = [text for name in archive.names if name.startswith("code/") for text in _code(archive, name)]
    bytecode = [archive.read(_BYTECODE).decode("latin-1")] if _BYTECODE in archive.names else []
    marks = collect(found[0] for text in (*code, *bytecode) for found in MARK.finditer(text))
    num_layers = sum(len(_INT8_LAYER.findall(text)) for text in code)
    num_marked = sum(mark.op in MAC_OPS for mark in marks.nodes)
    return GraphFacts(marks, num_layers, max(0, num_layers - num_marked))


def _code(archive: Archive, name: str) -> Iterator[str]:
    if name.endswith(".py"):
        yield archive.read(name).decode("utf-8", "replace")
