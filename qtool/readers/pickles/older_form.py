"""Reads what torch.save wrote in its older form, and pickles of anything else: files that are no archives.

The older form is pickles in a row (a magic number, a version, sizes of types, the value, the keys of its storages),
and then for each storage the number of its elements in 8 bytes and its bytes.
Source: torch/serialization.py, `_legacy_save` and `_legacy_load`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.beginnings import is_tar
from qtool.readers.facts import BITS, FileFacts, FileKind, ModelFacts, Place, StampProblem, StampProblemKind
from qtool.readers.pickles.machine import MAX_PICKLE_BYTES, Pickled, read_pickle
from qtool.readers.pickles.model import StoredBytes, is_object, model_facts
from qtool.readers.pickles.tensors import storage_dtype
from qtool.readers.source import OpenModel

if TYPE_CHECKING:
    from qtool.readers.source import Source

_START: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickle of 0x1950a86a20f9469cfc6c, with which the older form begins."""

_HEADERS: Final = 3
_COUNT_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 4096
_NO_STAMP: Final = StampProblem(StampProblemKind.MISSING, "it has no stamp")
_START_BYTES: Final = 512


def open_pickle(source: Source) -> OpenModel:
    """Return what a pickle, or a file of torch.save in its older form, says and holds.

    Raises:
        FileFormatError: it cannot be read, or its storages are cut off.
    """
    start = source.read(0, min(source.num_bytes, _START_BYTES))
    if is_tar(source):
        msg = (
            f"{source.where}: a file of torch.save in its oldest form, a tar of before torch 0.4, which is not read; "
            "load it with torch.load(..., weights_only=False) where you trust it, and save its state_dict() again"
        )
        raise FileFormatError(msg)
    data = source.read(0, min(source.num_bytes, MAX_PICKLE_BYTES))
    if start.startswith(_START):
        kind, model = _older(source, data)
    else:
        kind, model = _plain(source, data)
    facts = FileFacts(
        where=source.where,
        kind=kind,
        num_bytes=source.num_bytes,
        stamp=None,
        stamp_problem=_NO_STAMP,
        plan_json=None,
        config_json=None,
        content_digest=_digest(source),
        risks=model.risks,
        model=model,
    )
    return OpenModel(facts, source.blocks)


def _plain(source: Source, data: bytes) -> tuple[FileKind, ModelFacts]:
    """Read a pickle of anything; what it holds of tensors lies in pickles of its own, and is not looked at."""
    if source.num_bytes > len(data):
        msg = f"{source.where}: a pickle of {source.num_bytes} bytes; at most {MAX_PICKLE_BYTES} are read"
        raise FileFormatError(msg)
    pickled = read_pickle(data, where=source.where, entry="")
    if pickled.end != len(data):
        msg = f"{source.where}: a pickle with {len(data) - pickled.end} bytes behind its end; nothing is known of them"
        raise FileFormatError(msg)
    return FileKind.PICKLE, ModelFacts(
        form="a pickle that torch.save did not write", risks=pickled.risks, not_understood=("what it holds",)
    )


def _older(source: Source, data: bytes) -> tuple[FileKind, ModelFacts]:
    position = 0
    for _ in range(_HEADERS):
        position = read_pickle(data[: position + _MAX_HEADER_BYTES], where=source.where, entry="", start=position).end
    pickled = read_pickle(data, where=source.where, entry="", start=position)
    keys = read_pickle(data, where=source.where, entry="", start=pickled.end)
    places = _storages(source, pickled, keys)
    stored = StoredBytes(where=source.where, entry="", storage_place=places.get, blocks=source.blocks)
    kind = FileKind.MODULE if is_object(pickled.value) else FileKind.CHECKPOINT
    return kind, model_facts(pickled, stored)


def _storages(source: Source, pickled: Pickled, keys: Pickled) -> dict[str, Place]:
    """Return where each storage lies, by its key.

    Raises:
        FileFormatError: there is no list of keys, or the file ends within a storage.
    """
    if not isinstance(keys.value, list) or not all(isinstance(key, str) for key in keys.value):
        msg = f"{source.where}: the storages behind its pickle have no list of keys; it was cut off or changed"
        raise FileFormatError(msg)
    dtypes = dict(found for found in map(storage_dtype, pickled.references) if found is not None)
    places: dict[str, Place] = {}
    position = keys.end
    for key in keys.value:
        num_elements = int.from_bytes(source.read(position, _COUNT_BYTES), "little", signed=True)
        num_bytes = num_elements * BITS.get(dtypes.get(key, ""), 8) // 8
        position += _COUNT_BYTES
        if num_elements < 0 or position + num_bytes > source.num_bytes:
            msg = (
                f"{source.where}: storage {key[:50]!r} has {num_elements} elements, {num_bytes} bytes, and the file "
                f"ends after {source.num_bytes - position}; it was cut off, get it again"
            )
            raise FileFormatError(msg)
        places[key] = Place(part="", offset=position, num_bytes=num_bytes)
        position += num_bytes
    return places


def _digest(source: Source) -> str:
    total = hashlib.sha256()
    for block in source.blocks(Place(part="", offset=0, num_bytes=source.num_bytes)):
        total.update(block)
    return total.hexdigest()
