"""Convert: from a calibrated model to its int8 reference program."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from torch.nn.parallel import DataParallel, DistributedDataParallel

from qtool.backends.target import backends_of, target_name
from qtool.errors import QtoolWarning, UncalibratedError, UsageError
from qtool.passes.plan_program import plan_program
from qtool.runtime.converted import ConvertedModel, convert_calibrated
from qtool.runtime.prepared import PreparedModel
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.types import Spec

NOT_CALIBRATED = "not calibrated: its observers saw no data"


def convert(prepared: PreparedModel, backend: str | None = None, *, allow_uncalibrated: bool = False) -> ConvertedModel:
    """Return the int8 reference program of a prepared model.

    Args:
        prepared: a calibrated model; it is left as it was.
        backend: convert for another backend than it was prepared for; several joined by commas, or `portable`. Ranges
            are taken anew from what the observers saw, by the other backend's rules.
        allow_uncalibrated: keep nodes without data float instead of refusing.

    Raises:
        UncalibratedError: observers saw no data; all are named.
        UsageError: no such backend, it cannot do what the config asks for, or the model is no prepared one.

    Warns:
        QtoolWarning: the model is inside a DataParallel or DistributedDataParallel; the one inside is converted.
    """
    return convert_calibrated(planned_for(prepared, backend, allow_uncalibrated=allow_uncalibrated))


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
        prepared = _replanned(prepared, backends, {})
    missing = prepared.uncalibrated()
    if not missing:
        return prepared
    if not allow_uncalibrated:
        raise UncalibratedError(_refusal(prepared, missing), nodes=missing)
    return _without(prepared, missing)


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
            f"convert takes what qtool.prepare returned, or qtool.load of such a file; this is a {type(model).__name__}"
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
        prepared = _replanned(prepared, prepared.plan.backends, keep_float)
        missing = prepared.uncalibrated()
    return prepared


def _replanned(prepared: PreparedModel, backends: tuple[str, ...], keep_float: Mapping[str, str]) -> PreparedModel:
    """Return the same model under another plan; what its observers saw is kept by edge.

    A trained model keeps its grids too: they are what it was trained on, so another plan must not ask for other ones.
    """
    quantize, program = prepared.origin.config.quantize, prepared.current_program()
    plan = plan_program(program, quantize, backends=backends, isa=prepared.plan.isa, keep_float=keep_float)
    again = PreparedModel(program, plan, prepared.origin)
    for name, point in again.activations.items():
        before = prepared.activations.get(name)
        if before is not None and before.has_seen_data:
            point.observer.load_arrays(before.observer.to_arrays())
    if prepared.stage is Stage.TRAINED:
        _keep_grids(prepared, again)
    else:
        again.settle()
    return again


def _keep_grids(trained: PreparedModel, again: PreparedModel) -> None:
    """Take over the scales and zero points of training."""
    again.set_extra_state(trained.get_extra_state())
    for found, kept in ((again.activations, trained.activations), (again.weights, trained.weights)):
        for name, point in found.items():
            before = kept.get(name)
            if before is None or not _same_grid(before.fake_quantize.spec, point.fake_quantize.spec):
                raise UsageError(_other_grid(trained, again, name))
            point.load_state_dict(before.state_dict())


def _same_grid(one: Spec, other: Spec) -> bool:
    return all(
        getattr(one, field) == getattr(other, field) for field in ("dtype", "qmin", "qmax", "granularity", "axis")
    )


def _other_grid(trained: PreparedModel, again: PreparedModel, name: str) -> str:
    own, other = target_name(trained.plan.backends), target_name(again.plan.backends)
    return (
        f"the model was trained on the grids of {own}, and {other} has another one at {name!r}: convert it for {own}, "
        f"or train it with target.backend: {other}"
    )
