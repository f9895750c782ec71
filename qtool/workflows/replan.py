"""A prepared model under another plan, without data: observers know no backend, so what they saw serves any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.target import target_name
from qtool.errors import UsageError
from qtool.passes.plan_program import plan_program
from qtool.runtime.prepared import PreparedModel
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from qtool.types import Spec


def replanned(
    prepared: PreparedModel,
    backends: Sequence[str],
    *,
    keep_float: Mapping[str, str] | None = None,
    proved_safe: Collection[str] = (),
) -> PreparedModel:
    """Return the same model under another plan; what its observers saw is kept by edge.

    A trained model keeps its grids too: they are what it was trained on, so another plan must not ask for other ones.

    Args:
        prepared: the model; it is left as it was.
        backends: the backends to plan for.
        keep_float: names of nodes that stay float whatever the rules say, each with the reason.
        proved_safe: names of nodes whose weights are proved not to saturate with all codes of the input.

    Raises:
        UsageError: a backend is not known or cannot do what the config asks for, or the model was trained on a grid
            that the new plan has not.
    """
    quantize, program = prepared.origin.config.quantize, prepared.current_program()
    plan = plan_program(
        program, quantize, backends=backends, isa=prepared.plan.isa, keep_float=keep_float, proved_safe=proved_safe
    )
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
