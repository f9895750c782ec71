"""The plan of a float program: that of its eval graph, and of it only what train mode has too."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from qtool.passes.annotate import annotate
from qtool.passes.twins import only_in_training, twins, without_twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
) -> Plan:
    """Return the plan for a program; arguments and errors are those of `annotate`."""
    graph, asked = program.graph_module().graph, dict(keep_float or {})
    plan = annotate(graph, quantize, backends=backends, isa=isa, keep_float=asked)
    if program.trained is None:
        return plan
    # Weights that are computed from parameters are computed in both modes.
    evaluated = program.graph_module(computed_weights=True).graph
    trained = program.training_graph_module().graph
    missing = without_twin(plan, twins(evaluated, trained))
    if missing:
        plan = annotate(graph, quantize, backends=backends, isa=isa, keep_float={**asked, **missing})
    return dataclasses.replace(plan, training_only=only_in_training(evaluated, trained))
