"""Calibrate: show a prepared model data, so that every edge knows its range."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qtool.errors import NonFiniteError, QtoolWarning, UncalibratedError, UsageError
from qtool.runtime.prepared import PreparedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LABELS = ". Of a pair of inputs and labels give the inputs alone"


@torch.inference_mode(False)  # what is stored here is trained later, which inference tensors refuse
@torch.no_grad()
def calibrate(prepared: PreparedModel, batches: Iterable[Any], *, on_batch: Callable[[int], None] | None = None) -> int:
    """Run batches through the float model in eval mode, take their ranges, and fake-quantize from then on.

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
        UsageError: another kind of model, or a batch that the model does not take.
        NonFiniteError: NaN or infinity was met; the message names the edge and the batch.

    Warns:
        QtoolWarning: values of very different size share one scale, or the values of an edge lie on fewer than four
            codes; the message names them and what to do.
    """
    _check_arguments(prepared, batches)
    was_training = prepared.training
    prepared.eval().observe()
    num_batches = num_samples = 0
    try:
        for batch in batches:
            arguments = _arguments(batch, num_batches)
            try:
                prepared(*arguments)
            except NonFiniteError as error:
                msg = f"batch {num_batches}: {error}"
                raise NonFiniteError(msg) from error
            except UsageError as error:
                msg = f"batch {num_batches}: {error}{LABELS if _is_pair(batch) else ''}"
                raise UsageError(msg) from error
            num_batches += 1
            num_samples += _num_samples(arguments)
            if on_batch is not None:
                on_batch(num_samples)
    finally:
        prepared.settle()
        prepared.train(was_training)
    for message in prepared.range_warnings():
        warnings.warn(message, QtoolWarning, stacklevel=2)
    if num_batches == 0:
        msg = "no batch to calibrate on: the iterable was empty; a generator can be used only once"
        raise UncalibratedError(msg, nodes=prepared.uncalibrated())
    return num_batches


def _check_arguments(prepared: object, batches: object) -> None:
    if not isinstance(prepared, PreparedModel):
        msg = f"calibrate takes what qtool.prepare returned; this is a {type(prepared).__name__}"
        raise UsageError(msg)
    if not (hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")) or isinstance(
        batches, (str, bytes, Mapping)
    ):
        msg = f"batches is a {type(batches).__name__}; give a list, a generator or a DataLoader of batches"
        raise UsageError(msg)


def _arguments(batch: Any, number: int) -> tuple[Any, ...]:  # noqa: ANN401
    inputs = getattr(batch, "inputs", batch)
    if isinstance(inputs, (Tensor, Mapping)):
        return (inputs,)
    if not isinstance(inputs, (tuple, list)):
        msg = f"batch {number} is a {type(inputs).__name__}; give a tensor, or a tuple of the model's arguments"
        raise UsageError(msg)
    return tuple(inputs)


def _is_pair(batch: object) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def _num_samples(arguments: tuple[Any, ...]) -> int:
    first = next((a for a in arguments if isinstance(a, Tensor) and a.dim()), None)
    return 1 if first is None else first.shape[0]
