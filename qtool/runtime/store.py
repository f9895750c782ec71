"""Models to bytes and back; loading a prepared model runs the passes again from the stored plan."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import torch

from qtool.capture.program import FloatProgram
from qtool.config.load import config_from_mapping
from qtool.errors import FileFormatError, UsageError
from qtool.numerics.qparams import QParams
from qtool.passes import qdq_ops  # noqa: F401 - registers the ops that a converted program is made of
from qtool.readers.archive import read_archive
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.runtime.container import pack, read_arrays
from qtool.runtime.converted import ConvertedModel
from qtool.runtime.prepared import Origin, PreparedModel
from qtool.stamp.plan_json import plan_from_json
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from qtool.passes.points import WeightPoint


def to_bytes(model: PreparedModel | ConvertedModel) -> bytes:
    """Return a model as the bytes of a file; equal models give equal bytes."""
    if isinstance(model, PreparedModel):
        exported, arrays = model.program.exported, _state(model)
    else:
        exported, arrays = model.exported, {}
    return pack(exported, model.plan, model.stamp, model.origin, arrays)


def from_bytes(data: bytes, *, where: str | Path = "data") -> PreparedModel | ConvertedModel:
    """Return the model that a file's bytes hold.

    Args:
        data: the bytes; those that are checked are those that are loaded.
        where: what to call the file in messages.

    Raises:
        FileFormatError: not a file of qtool's, damaged, changed, or one that loading would execute code of.
        UsageError: the file is exported, for a runtime that the message names.
    """
    file = read_qtool_file(data, where=str(where))
    stamp = check_loadable(file)
    if stamp.stage is Stage.EXPORTED:
        msg = (
            f"{where} is exported: it runs in torch without qtool, torch.export.load({str(where)!r}).module(). "
            f"What qtool loads is the converted file that it was made from"
        )
        raise UsageError(msg)
    if file.plan_json is None or file.config_json is None:
        msg = "the file has a stamp but no plan or config; write it again with qtool"
        raise FileFormatError(msg)
    plan = plan_from_json(file.plan_json)
    origin = Origin(
        config=config_from_mapping(json.loads(file.config_json), "config.json"),
        config_digest=stamp.config_digest,
        source_digest=stamp.source_digest,
        preprocessing=stamp.preprocessing,
    )
    exported = torch.export.load(io.BytesIO(data))
    if stamp.stage is Stage.PREPARED:
        model = PreparedModel(FloatProgram(exported, stamp.inputs), plan, origin)
        _restore(model, _arrays(data))
        return model
    return ConvertedModel(exported, plan, stamp, origin)


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    with read_archive(data) as archive:
        return read_arrays({name: archive.read(name) for name in archive.names if name.startswith("qtool/")})


# --- the state of a prepared model: what observers saw, and the parameters in use


def _state(model: PreparedModel) -> dict[str, np.ndarray]:
    arrays = {}
    for index, point in enumerate(model.activations.values()):
        if point.is_calibrated:
            for name, array in point.observer.to_arrays().items():
                arrays[f"observer/{index}.{name}"] = array
            arrays.update(_qparams_arrays(f"activation/{index}", point.fake_quantize))
    for index, weight in enumerate(_distinct_weights(model)):
        if weight.is_calibrated:
            arrays.update(_qparams_arrays(f"weight/{index}", weight.fake_quantize))
    return arrays


def _qparams_arrays(prefix: str, module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {f"{prefix}.{name}": getattr(module, name).cpu().numpy() for name in ("scale", "zero_point")}


def _restore(model: PreparedModel, arrays: Mapping[str, np.ndarray]) -> None:
    is_settled = False
    for index, point in enumerate(model.activations.values()):
        prefix = f"observer/{index}."
        seen = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        if seen:
            point.observer.load_arrays(seen)
            point.fake_quantize.set_qparams(_qparams(arrays, f"activation/{index}"))
            is_settled = True
    for index, weight in enumerate(_distinct_weights(model)):
        if f"weight/{index}.scale" in arrays:
            weight.fake_quantize.set_qparams(_qparams(arrays, f"weight/{index}"))
            weight.is_calibrated = True
    if is_settled:
        model.fake_quantize()


def _qparams(arrays: Mapping[str, np.ndarray], prefix: str) -> QParams:
    try:
        return QParams(*(torch.from_numpy(arrays[f"{prefix}.{name}"].copy()) for name in ("scale", "zero_point")))
    except KeyError as error:
        msg = f"the array {error.args[0]!r} is missing from the file; it was damaged, get it again"
        raise FileFormatError(msg) from error


def _distinct_weights(model: PreparedModel) -> list[WeightPoint]:
    return list({id(point): point for point in model.weights.values()}.values())
