"""Calibrate: show a prepared model data, so that every edge knows its range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qtool.errors import NonFiniteError, UncalibratedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qtool.runtime.prepared import PreparedModel


@torch.no_grad()
def calibrate(prepared: PreparedModel, batches: Iterable[Any], *, on_batch: Callable[[int], None] | None = None) -> int:
    """Run batches through the float model, take their ranges, and fake-quantize from then on.

    Batches are streamed: only one is held at a time. Calling it again adds to what was seen before.

    Args:
        prepared: what `prepare` returned.
        batches: each a tensor, a tuple of the model's arguments, or an object with `.inputs` such as a data
            source gives. A list of (input, label) pairs is not one: give the inputs alone.
        on_batch: called after each batch with the number of samples seen so far.

    Returns:
        The number of batches.

    Raises:
        UncalibratedError: there was no batch.
        NonFiniteError: NaN or infinity was met; the message names the edge and the batch.
    """
    prepared.observe()
    num_batches = num_samples = 0
    try:
        for batch in batches:
            arguments = _arguments(batch)
            try:
                prepared(*arguments)
            except NonFiniteError as error:
                msg = f"batch {num_batches}: {error}"
                raise NonFiniteError(msg) from error
            num_batches += 1
            num_samples += _num_samples(arguments)
            if on_batch is not None:
                on_batch(num_samples)
    finally:
        prepared.settle()
    if num_batches == 0:
        msg = "no batch to calibrate on: the iterable was empty; a generator can be used only once"
        raise UncalibratedError(msg, nodes=prepared.uncalibrated())
    return num_batches


def _arguments(batch: Any) -> tuple[Any, ...]:  # noqa: ANN401
    inputs = getattr(batch, "inputs", batch)
    if isinstance(inputs, (Tensor, Mapping)):
        return (inputs,)
    return tuple(inputs)


def _num_samples(arguments: tuple[Any, ...]) -> int:
    first = next((a for a in arguments if isinstance(a, Tensor) and a.dim()), None)
    return 1 if first is None else first.shape[0]
