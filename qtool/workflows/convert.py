"""Convert: from a calibrated model to its int8 reference program."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch.nn.parallel import DataParallel, DistributedDataParallel

from qtool.backends.target import backends_of
from qtool.errors import QtoolWarning, UncalibratedError, UsageError
from qtool.runtime.converted import ConvertedModel, convert_calibrated
from qtool.runtime.prepared import PreparedModel
from qtool.workflows.load import read
from qtool.workflows.move import left_on_the_table, move
from qtool.workflows.per_node_range import reduced_per_node
from qtool.workflows.replan import replanned

NOT_CALIBRATED = "not calibrated: its observers saw no data"


def convert(
    model: PreparedModel | ConvertedModel | str | Path,
    backend: str | None = None,
    *,
    allow_uncalibrated: bool = False,
) -> ConvertedModel:
    """Return the int8 reference program of a prepared model, or a converted model made for another backend.

    Args:
        model: a calibrated model, or a converted one to be moved: then every code, scale and range stays as it is,
            and what would be wrong on the other backend is refused by name. It is left as it was. A path stands for
            the model in that file: what `qtool.load` gives of a converted one is packed, and cannot be moved.
        backend: convert for another backend than it was prepared for; several joined by commas, or `portable`. Ranges
            are taken anew from what the observers saw, by the other backend's rules.
        allow_uncalibrated: keep nodes without data float instead of refusing.

    Raises:
        UncalibratedError: observers saw no data; all are named.
        UsageError: no such backend, it cannot do what the config asks for, or the model is neither prepared nor
            converted.
        MismatchError: a converted model would be wrong on the other backend; its nodes are named.

    Warns:
        QtoolWarning: the model is inside a DataParallel or DistributedDataParallel; the one inside is converted.
            Or a converted model keeps ranges of 7 bits that the other backend does not need.
    """
    if isinstance(model, (str, Path)):
        model = read(model)
    if isinstance(model, ConvertedModel):
        return _moved(model, backend)
    return convert_calibrated(planned_for(model, backend, allow_uncalibrated=allow_uncalibrated))


def _moved(converted: ConvertedModel, backend: str | None) -> ConvertedModel:
    if backend is None:
        msg = "the model is converted already; name the backend to move it to: convert(model, backend=...)"
        raise UsageError(msg)
    moved = move(converted, backend)
    if moved.reduced_in_vain:
        warnings.warn(left_on_the_table(moved), QtoolWarning, stacklevel=3)
    return moved.model


def planned_for(
    prepared: PreparedModel, backend: str | None = None, *, allow_uncalibrated: bool = False
) -> PreparedModel:
    """Return the prepared model that `convert` converts: planned for the backend, every quantized edge calibrated.

    It is `prepared` itself where nothing changes. Arguments and errors are those of `convert`.
    """
    prepared = _unwrapped(prepared)
    _check_is_prepared(prepared)
    backends = prepared.plan.backends if backend is None else backends_of(backend)
    if backends != prepared.plan.backends:
        prepared = replanned(prepared, backends)
    missing = prepared.uncalibrated()
    if missing and not allow_uncalibrated:
        raise UncalibratedError(_refusal(prepared, missing), nodes=missing)
    return reduced_per_node(_without(prepared, missing))


def _unwrapped(model: PreparedModel) -> PreparedModel:
    """Return the model inside a wrapper that trains it on several devices, and say so."""
    if not isinstance(model, (DataParallel, DistributedDataParallel)):
        return model
    msg = f"convert takes the model inside of the {type(model).__name__}, as it is on this process"
    warnings.warn(msg, QtoolWarning, stacklevel=4)
    return model.module


def _check_is_prepared(model: object) -> None:
    if not isinstance(model, PreparedModel):
        msg = (
            f"convert takes what qtool.prepare returned, or qtool.load of such a file; this is a "
            f"{type(model).__name__}. To move a converted file to another backend give its path and the backend"
        )
        raise UsageError(msg)


def _refusal(prepared: PreparedModel, missing: tuple[str, ...]) -> str:
    total = len(prepared.activations)
    shown = ", ".join(missing[:20]) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
    return (
        f"{len(missing)} of {total} observers saw no data: {shown}. Calibrate first (data.calibrate in the config, or "
        f"qtool.calibrate), or keep these nodes float with --allow-uncalibrated (allow_uncalibrated=True)"
    )


def _without(prepared: PreparedModel, missing: tuple[str, ...]) -> PreparedModel:
    """Return the model planned again with every node that touches an edge without data kept float."""
    while missing:
        unknown = set(missing)
        keep_float = {
            node.name: NOT_CALIBRATED
            for node in prepared.plan.int8_nodes()
            if unknown & {*node.inputs, *([node.output] if node.output else [])}
        }
        keep_float.update({n.name: n.reason for n in prepared.plan.nodes if n.reason == NOT_CALIBRATED})
        prepared = replanned(prepared, prepared.plan.backends, keep_float=keep_float)
        missing = prepared.uncalibrated()
    return prepared
