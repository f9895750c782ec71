"""Reads what torch.save wrote as a zip: a state dict, a training checkpoint, or a whole module; nothing is unpickled.

Source: torch/serialization.py, `_save`: the pickle is `data.pkl`, the bytes of each storage an entry `data/KEY`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.entries import PICKLE_ENTRY
from qtool.readers.facts import Place
from qtool.readers.pickles.machine import MAX_PICKLE_BYTES, outermost, read_pickle
from qtool.readers.pickles.model import StoredBytes, is_object, model_facts

if TYPE_CHECKING:
    from qtool.readers.archive import Archive
    from qtool.readers.facts import ModelFacts

_BYTE_ORDER: Final = "byteorder"
_LOOKED_AT_BYTES: Final = 4096
_MAX_ORDER_BYTES: Final = 100


def read_checkpoint(archive: Archive) -> ModelFacts:
    """Return what the model in an archive of torch.save consists of.

    Raises:
        FileFormatError: its pickle cannot be read, or a tensor reaches beyond its storage.
    """
    order = archive.read(_BYTE_ORDER, limit=_MAX_ORDER_BYTES) if _BYTE_ORDER in archive.names else b"little"

    def storage_place(key: str) -> Place | None:
        name = f"data/{key}"
        return Place(part=name, offset=0, num_bytes=archive.size(name)) if name in archive.names else None

    stored = StoredBytes(
        where=archive.where,
        entry=PICKLE_ENTRY,
        storage_place=storage_place,
        blocks=archive.blocks,
        is_little_endian=order != b"big",
    )
    data = archive.read(PICKLE_ENTRY, limit=MAX_PICKLE_BYTES)
    return model_facts(read_pickle(data, where=archive.where, entry=PICKLE_ENTRY), stored)


def holds_object(archive: Archive) -> bool:
    """Return whether what torch.save saved in an archive is a module or other object, told from its first bytes."""
    start = next(archive.chunks(PICKLE_ENTRY), b"")[:_LOOKED_AT_BYTES]
    return is_object(outermost(start))
