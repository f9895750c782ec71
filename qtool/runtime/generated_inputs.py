"""Made-up inputs that try a model from end to end of what it was calibrated for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from qtool.capture.sizes import example_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from qtool.capture.program import Call
    from qtool.stamp.schema import InputStamp, Stamp

BATCH = 4
"""Batch of generated inputs."""

OVERSHOOT = 1.1
"""Generated inputs exceed the calibrated range by this factor, so that both ends of it are met and clamped."""


def generated_inputs(
    call: Call,
    inputs: Sequence[InputStamp],
    ranges: Mapping[str, tuple[float, float]],
    *,
    seed: int = 0,
    batch: int = BATCH,
) -> tuple[Any, ...]:
    """Return arguments with uniform random tensors that cover, and exceed a little, the calibrated range of each.

    Args:
        call: what the model is called with.
        inputs: name, shape and dtype of each tensor.
        ranges: lowest and highest float of the inputs that are quantized, by name. Others are normally distributed,
            and whole numbers 0.
        seed: of the random numbers.
        batch: size of a dynamic first dimension.
    """
    generator = torch.Generator().manual_seed(seed)
    return call.arrange(_generated(stamp, ranges.get(stamp.name), generator, batch) for stamp in inputs)


def calibrated_ranges(stamp: Stamp) -> dict[str, tuple[float, float]]:
    """Return lowest and highest float of each quantized edge that an int8 node reads, by edge name.

    Example:
        Codes 0..127 with scale 0.5 and zero point 27 give (-13.5, 50.0).
    """
    found = {}
    for node in stamp.int8_nodes():
        for edge in node.inputs:
            if edge.scale_min is not None and edge.zero_point_min is not None:
                low, high = (code - edge.zero_point_min for code in (edge.qmin, edge.qmax))
                found[edge.edge] = (low * edge.scale_min, high * edge.scale_min)
    return found


def _generated(stamp: InputStamp, ends: tuple[float, float] | None, generator: torch.Generator, batch: int) -> Tensor:
    shape = example_sizes(stamp, batch=batch)
    dtype = getattr(torch, stamp.dtype)
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)  # indices: 0 is the one that is always allowed
    if ends is None:
        return torch.randn(shape, generator=generator, dtype=dtype)
    low, high = (end * OVERSHOOT for end in ends)
    return torch.rand(shape, generator=generator, dtype=dtype) * (high - low) + low
