"""The container of prepared and converted models: a PT2 archive with qtool's entries added.

    archive/...                       what torch.export.save writes: graph, weights
    archive/extra/qtool/stamp.json    the stamp; plan.json, config.json beside it
    archive/qtool/*.npy               arrays: what observers saw, scales and zero points (prepared models)
    archive/qtool/training.pt2        the model in train mode, an archive of its own without weights (mode qat)

The same model gives the same bytes: entries in a fixed order, no times, no sample data, nothing of the machine.
"""

from __future__ import annotations

import io
import zipfile
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch.export.graph_signature import InputKind

from qtool.runtime.npy import array_bytes, array_from
from qtool.stamp.digest import content_digest
from qtool.stamp.plan_json import plan_to_json
from qtool.stamp.schema import CONFIG_ENTRY, PLAN_ENTRY, STAMP_ENTRY, TRAINING_GRAPH, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch.export import ExportedProgram

    from qtool.plan import Plan
    from qtool.runtime.origin import Origin
    from qtool.stamp.schema import Stamp

ROOT = "archive/"
ARRAYS = "qtool/"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(
    exported: ExportedProgram,
    plan: Plan,
    stamp: Stamp,
    origin: Origin,
    arrays: Mapping[str, np.ndarray],
    *,
    trained: ExportedProgram | None = None,
) -> bytes:
    """Return the bytes of the archive.

    Args:
        exported: the program, stripped of its origins.
        plan: the plan.
        stamp: the stamp; its content digest is filled in here.
        origin: its config is stored as config.json.
        arrays: by name without folder and ending.
        trained: the model in train mode; of its tensors those are stored that `exported` does not have.
    """
    added = {
        **({} if trained is None else {TRAINING_GRAPH: _without_tensors(trained)}),
        PLAN_ENTRY: plan_to_json(plan).encode(),
        CONFIG_ENTRY: origin.config.to_json().encode(),
        **{f"{ARRAYS}{name}.npy": array_bytes(array) for name, array in arrays.items()},
    }
    return pack_entries(exported, stamp, added)


def pack_entries(exported: ExportedProgram, stamp: Stamp, added: Mapping[str, bytes]) -> bytes:
    """Return the bytes of an archive with a program, its stamp, and other entries by name."""
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    return stamp_archive(buffer.getvalue(), stamp, added)


def stamp_archive(data: bytes, stamp: Stamp, added: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """Return the bytes of an archive of torch's with entries added, and a stamp for all that is in it.

    Args:
        data: a zip whose entries lie below `ROOT`.
        stamp: the stamp; its content digest is filled in here.
        added: other entries by name.
    """
    buffer = io.BytesIO()
    buffer.write(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        entries = {name.removeprefix(ROOT): archive.read(name) for name in archive.namelist()}
        stamped = stamp.with_content(content_digest({**entries, **added}))
        for name, content in {**added, STAMP_ENTRY: to_json(stamped).encode()}.items():
            archive.writestr(_entry(ROOT + name), content)
    return buffer.getvalue()


def _without_tensors(trained: ExportedProgram) -> bytes:
    """Return a training graph as an archive; a tensor that the eval graph has too is stored without its values."""
    names = {
        str(s.target) for s in trained.graph_signature.input_specs if s.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    }
    held = [(tensors, dict(tensors)) for tensors in (trained.state_dict, trained.constants)]
    try:
        for tensors, _ in held:
            tensors.update({name: _empty(tensor) for name, tensor in tensors.items() if name in names})
        buffer = io.BytesIO()
        torch.export.save(trained, buffer)
    finally:
        for tensors, before in held:
            tensors.update(before)
    return buffer.getvalue()


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=tensor.dtype)
    return torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 0  # the default names the platform
    entry.external_attr = 0
    return entry


def read_arrays(entries: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Return the arrays among an archive's entries, by name without folder and ending."""
    return {
        name.removeprefix(ARRAYS).removesuffix(".npy"): array_from(data, where=name)
        for name, data in entries.items()
        if name.startswith(ARRAYS) and name.endswith(".npy")
    }
