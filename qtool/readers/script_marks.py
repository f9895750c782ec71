"""Reads the marks in the code of a TorchScript archive, as text; nothing is loaded.

    if torch.ne(ops.prim.dtype(x), 13):
      ops.prim.RaiseException("qtool 1 node name=conv1 ...", "builtins.RuntimeError")

Files for the lite interpreter hold the same texts in `bytecode.pkl` too, and may hold them there alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.marks import MARK, GraphFacts, collect, num_marked_layers
from qtool.readers.scripts.code import code_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.archive import Archive

_BYTECODE: Final = "bytecode.pkl"
_INT8_LAYER: Final = re.compile(r"\bops\.quantized\.(?:conv|linear)(?!\w*(?:prepack|unpack))\w*\(")


def script_facts(archive: Archive) -> GraphFacts:
    """Return the marks in a TorchScript archive, and how many of its int8 layers have none."""
    code = code_texts(archive).values()
    said = [found[0] for text in code for found in MARK.finditer(text)]
    num_layers = sum(len(_INT8_LAYER.findall(text)) for text in code)
    # Before those that say the same become one: two models with one name for a layer are two layers.
    num_marked = num_marked_layers(said)
    if _BYTECODE in archive.names:
        said += _pickled_texts(archive.read(_BYTECODE))
    return GraphFacts(collect(said), num_layers, max(0, num_layers - num_marked))


def _pickled_texts(data: bytes) -> Iterator[str]:
    """Yield the texts in a pickle that begin like a mark: each stands behind its length in four bytes."""
    for found in re.finditer(b"qtool ", data):
        start = found.start()
        length = int.from_bytes(data[max(0, start - 4) : start], "little")
        yield data[start : start + length].decode("latin-1")
