"""Verify: how far each node of a converted model is from the fake-quantized model, on the engine that will run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtool.backends.registry import backend
from qtool.lowering.engine_switch import available_engines
from qtool.runtime.generated_inputs import calibrated_ranges, generated_inputs
from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import step_differences

if TYPE_CHECKING:
    from qtool.runtime.converted import ConvertedModel
    from qtool.runtime.prepared import PreparedModel


def verify(
    prepared: PreparedModel,
    converted: ConvertedModel,
    inputs: tuple[Any, ...] | None = None,
    *,
    engine: str | None = None,
    use_reference: bool = False,
) -> dict[str, int]:
    """Return, for each quantized edge, the largest difference to the fake-quantized model in steps of its scale.

    An edge bears the name of the node that writes it. Each node is fed the same codes as in the fake-quantized
    model, so differences do not add up along the way. One step is what rounding may cost; more is a fault.

    Args:
        prepared: the calibrated model.
        converted: what `convert` made of it.
        inputs: what to call the model with; None generates inputs that cover the calibrated range of every input.
        engine: engine to run on; None takes that of the converted model's backend.
        use_reference: compare the reference program itself instead of an engine.

    Raises:
        MissingEngineError: this torch does not have the engine.
        MismatchError: the engine would saturate on this CPU.
    """
    given = generated_for(prepared) if inputs is None else inputs
    lowered = converted.body if use_reference else RuntimeModel(converted, engine).body
    return step_differences(prepared, lowered, given)


def verify_target(prepared: PreparedModel, converted: ConvertedModel) -> dict[str, int]:
    """Return what `verify` returns, the worst of all engines that the model is made for and that are here.

    Where there is none, as for a model for ONNX Runtime, the reference program itself is compared.

    Args:
        prepared: the calibrated model.
        converted: what `convert` made of it.

    Raises:
        MissingEngineError: the model is made for one engine, and this torch does not have it.
        MismatchError: an engine would saturate on this CPU.
    """
    engines = [record.engine for record in map(backend, converted.plan.backends) if record.engine is not None]
    here = engines if len(engines) == 1 else [engine for engine in engines if engine in available_engines()]
    found = [verify(prepared, converted, engine=engine) for engine in here]
    found = found or [verify(prepared, converted, use_reference=True)]
    return {edge: max(each[edge] for each in found) for edge in found[0]}


def generated_for(prepared: PreparedModel) -> tuple[Any, ...]:
    """Return arguments that cover, and exceed a little, the calibrated range of each input."""
    program = prepared.program
    return generated_inputs(program.call, program.inputs, calibrated_ranges(prepared.stamp))
