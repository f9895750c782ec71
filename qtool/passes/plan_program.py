"""The plan of a float program: that of its eval graph, and of it only what train mode has too."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from qtool.passes.annotate import annotate
from qtool.passes.target_costs import target_costs
from qtool.passes.twins import only_in_training, twins, without_twin

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from qtool.capture.program import FloatProgram
    from qtool.config.schema import QuantizeConfig
    from qtool.plan import Plan
    from qtool.types import Isa


def plan_program(
    program: FloatProgram,
    quantize: QuantizeConfig,
    *,
    backends: Sequence[str],
    isa: Isa,
    keep_float: Mapping[str, str] | None = None,
    proved_safe: Collection[str] = (),
) -> Plan:
    """Return the plan for a program; arguments and errors are those of `annotate`."""
    graph, asked = program.graph_module().graph, dict(keep_float or {})

    def plan_for(names: Sequence[str], keep: Mapping[str, str]) -> Plan:
        return annotate(graph, quantize, backends=names, isa=isa, keep_float=keep, proved_safe=proved_safe)

    plan = plan_for(backends, asked)
    if len(plan.backends) > 1:
        alone = {name: plan_for((name,), asked) for name in plan.backends}
        plan = dataclasses.replace(plan, costs=target_costs(plan, alone))
    if program.trained is None:
        return plan
    # Weights that are computed from parameters are computed in both modes.
    evaluated = program.graph_module(computed_weights=True).graph
    trained = program.training_graph_module().graph
    missing = without_twin(plan, twins(evaluated, trained))
    if missing:
        plan = dataclasses.replace(plan_for(backends, {**asked, **missing}), costs=plan.costs)
    return dataclasses.replace(plan, training_only=only_in_training(evaluated, trained))
