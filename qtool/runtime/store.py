"""Models to bytes and back; loading a prepared model runs the passes again from the stored plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from qtool.capture.program import FloatProgram, unite_tensors
from qtool.config.load import config_from_mapping
from qtool.errors import FileFormatError, UsageError
from qtool.numerics.qparams import QParams
from qtool.passes import qdq_ops  # noqa: F401 - registers the ops that a converted program is made of
from qtool.readers.archive import read_archive
from qtool.readers.facts import FileKind
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.runtime.container import pack, read_arrays
from qtool.runtime.converted import ConvertedModel
from qtool.runtime.origin import Origin
from qtool.runtime.prepared import PreparedModel
from qtool.runtime.program_file import load_program, parts_fit
from qtool.stamp.plan_json import plan_from_json
from qtool.stamp.schema import TRAINING_GRAPH
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from qtool.numerics.module import FakeQuantize
    from qtool.passes.points import Point
    from qtool.passes.weight_point import WeightPoint
    from qtool.readers.facts import FileFacts
    from qtool.stamp.schema import Stamp


def to_bytes(model: PreparedModel | ConvertedModel) -> bytes:
    """Return a model as the bytes of a file; equal models give equal bytes."""
    if not isinstance(model, PreparedModel):
        return pack(model.exported, model.plan, model.stamp, model.origin, {})
    program = model.current_program()
    return pack(program.exported, model.plan, model.stamp, model.origin, _state(model), trained=program.trained)


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
            f"{where} is exported: it runs in torch without qtool, {_loader(file.kind).format(repr(str(where)))}. "
            f"What qtool loads is the converted file that it was made from"
        )
        raise UsageError(msg)
    with parts_fit(str(where)):
        return _model(file, stamp, data)


def _model(file: FileFacts, stamp: Stamp, data: bytes) -> PreparedModel | ConvertedModel:
    """Return the model of a file that may be loaded; `file` is what was read of `data`."""
    if file.plan_json is None or file.config_json is None:
        msg = f"{file.where}: the file has a stamp but no plan or config; write it again with qtool"
        raise FileFormatError(msg)
    plan = plan_from_json(file.plan_json, where=f"{file.where}: plan")
    origin = Origin(
        config=config_from_mapping(json.loads(file.config_json), f"{file.where}: config.json"),
        config_digest=stamp.config_digest,
        source_digest=stamp.source_digest,
        preprocessing=stamp.preprocessing,
    )
    exported = load_program(data, where=file.where)
    if stamp.stage not in (Stage.PREPARED, Stage.TRAINED):
        return ConvertedModel(exported, plan, stamp, origin)
    entries = _qtool_entries(data)
    trained = load_program(entries[TRAINING_GRAPH], where=file.where) if TRAINING_GRAPH in entries else None
    program = unite_tensors(FloatProgram(exported, stamp.inputs, trained))
    model = PreparedModel(program, plan, origin)
    _restore(model, read_arrays(entries))
    return model


def _loader(kind: FileKind) -> str:
    """Return how torch loads an exported file, with its name left out."""
    return "torch.jit.load({})" if kind is FileKind.TORCHSCRIPT else "torch.export.load({}).module()"


def _qtool_entries(data: bytes) -> dict[str, bytes]:
    with read_archive(data) as archive:
        return {name: archive.read(name) for name in archive.names if name.startswith("qtool/")}


# --- the state of a prepared model: what observers saw, the parameters in use, how far training has come

PROGRESS = "progress"


def _state(model: PreparedModel) -> dict[str, np.ndarray]:
    arrays = {PROGRESS: model.get_extra_state().numpy()} if model.is_trainable else {}
    for index, point in enumerate(model.activations.values()):
        if point.has_seen_data:
            for name, array in point.observer.to_arrays().items():
                arrays[f"observer/{index}.{name}"] = array
        if point.is_calibrated:
            arrays.update(_qparams_arrays(f"activation/{index}", point.fake_quantize))
    for index, weight in enumerate(_distinct_weights(model)):
        if weight.is_calibrated:
            arrays.update(_qparams_arrays(f"weight/{index}", weight.fake_quantize))
            arrays[f"weight/{index}.input_scale"] = weight.input_scale.cpu().numpy()
            if weight.folds_in_training:
                arrays[f"weight/{index}.folded_var"] = weight.folded_var.cpu().numpy()
    return arrays


def _qparams_arrays(prefix: str, module: FakeQuantize) -> dict[str, np.ndarray]:
    names = ("scale", "zero_point", *(("start", "shift") if module.learns else ()))
    return {f"{prefix}.{name}": getattr(module, name).detach().cpu().numpy() for name in names}


def _restore(model: PreparedModel, arrays: Mapping[str, np.ndarray]) -> None:
    for index, point in enumerate(model.activations.values()):
        prefix = f"observer/{index}."
        seen = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        if seen:
            point.observer.load_arrays(seen)
        if f"activation/{index}.scale" in arrays:
            point.settle(_qparams(arrays, f"activation/{index}"))
    for index, weight in enumerate(_distinct_weights(model)):
        if f"weight/{index}.scale" in arrays:
            weight.settle(_qparams(arrays, f"weight/{index}"))
            weight.input_scale.copy_(_tensor(arrays, f"weight/{index}.input_scale"))
            if weight.folds_in_training and f"weight/{index}.folded_var" in arrays:  # older files have none
                weight.folded_var.copy_(_tensor(arrays, f"weight/{index}.folded_var", like=weight.folded_var))
    _restore_learned(model, arrays)
    if PROGRESS in arrays:
        model.set_extra_state(_tensor(arrays, PROGRESS))
    elif any(point.is_calibrated for point in model.activations.values()):
        model.fake_quantize()


def _restore_learned(model: PreparedModel, arrays: Mapping[str, np.ndarray]) -> None:
    """Let scales learn that learned in the file."""
    if not any(name.endswith(".shift") for name in arrays):
        return
    model.learn_scales()
    kinds: dict[str, list[Point]] = {"activation": [*model.activations.values()], "weight": [*_distinct_weights(model)]}
    for kind, points in kinds.items():
        for index, point in enumerate(points):
            if point.fake_quantize.learns:
                prefix = f"{kind}/{index}"
                point.fake_quantize.resume_scale(*(_tensor(arrays, f"{prefix}.{name}") for name in ("start", "shift")))


def _qparams(arrays: Mapping[str, np.ndarray], prefix: str) -> QParams:
    return QParams(*(_tensor(arrays, f"{prefix}.{name}") for name in ("scale", "zero_point")))


def _tensor(arrays: Mapping[str, np.ndarray], name: str, *, like: torch.Tensor | None = None) -> torch.Tensor:
    if name not in arrays:
        msg = f"the array {name!r} is missing from the file; it was damaged, get it again"
        raise FileFormatError(msg)
    if like is not None and arrays[name].shape != tuple(like.shape):
        msg = f"the array {name!r} is of shape {arrays[name].shape}, not {tuple(like.shape)}; the file was damaged"
        raise FileFormatError(msg)
    return torch.from_numpy(arrays[name].copy())


def _distinct_weights(model: PreparedModel) -> list[WeightPoint]:
    return list({id(point): point for point in model.weights.values()}.values())
