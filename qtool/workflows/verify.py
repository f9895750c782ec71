"""Verify: how far each node of a converted model is from the fake-quantized model, on the engine that will run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from qtool.capture.sizes import example_sizes
from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import step_differences

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.runtime.converted import ConvertedModel
    from qtool.runtime.prepared import PreparedModel
    from qtool.stamp.schema import InputStamp

BATCH = 4
"""Batch of generated inputs."""

OVERSHOOT = 1.1
"""Generated inputs exceed the calibrated range by this factor, so that both ends of it are met and clamped."""


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
    given = generated_inputs(prepared) if inputs is None else inputs
    lowered = converted.body if use_reference else RuntimeModel(converted, engine).body
    return step_differences(prepared, lowered, given)


def generated_inputs(prepared: PreparedModel, *, seed: int = 0) -> tuple[Any, ...]:
    """Return arguments with uniform random tensors that cover, and exceed a little, the calibrated range of each."""
    generator = torch.Generator().manual_seed(seed)
    program = prepared.program
    return program.call.arrange(_generated(prepared, stamp, generator) for stamp in program.inputs)


def _generated(prepared: PreparedModel, stamp: InputStamp, generator: torch.Generator) -> Tensor:
    shape = example_sizes(stamp, batch=BATCH)
    dtype = getattr(torch, stamp.dtype)
    point = prepared.activations.get(stamp.name)
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)  # indices: 0 is the one that is always allowed
    if point is None:
        return torch.randn(shape, generator=generator, dtype=dtype)
    spec, fake = point.fake_quantize.spec, point.fake_quantize
    low, high = ((code - int(fake.zero_point)) * float(fake.scale) * OVERSHOOT for code in (spec.qmin, spec.qmax))
    return torch.rand(shape, generator=generator, dtype=dtype) * (high - low) + low
