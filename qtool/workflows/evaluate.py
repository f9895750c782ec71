"""Measures a quantized model against the float model it came from, on the same samples, in one pass over the data.

Shapes: N samples, C classes; an output is (N, C, ...), where further dimensions (pixels of a segmentation) are
positions that are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qtool.data.sources import open_source
from qtool.errors import ConfigError, DataError, ModelError, NonFiniteError
from qtool.workflows.float_model import build_model, require_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from qtool.config.schema import Config
    from qtool.data.batch import Batch
    from qtool.data.sources import DataSource


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured. With several outputs, accuracy and agreement are of the first, SQNR is over all.

    Attributes:
        num_samples: samples seen.
        num_labelled: decisions that had a label: samples, or pixels of a segmentation.
        accuracy: share of labelled decisions where the quantized model's class is the label, 0..1; None without labels.
        float_accuracy: the same for the float model.
        agreement: share of all decisions where both models choose the same class, 0..1; None if the first output
            has no classes to choose from. Of equal values, frequent among int8 outputs, the first is chosen.
        sqnr_db: signal to quantization noise in dB over all elements of all float outputs: infinity when both models
            give the same numbers.
        float_bytes: size of the float model's parameters and buffers, shared ones counted once.
    """

    num_samples: int
    num_labelled: int
    accuracy: float | None
    float_accuracy: float | None
    agreement: float | None
    sqnr_db: float
    float_bytes: int


def evaluate(model: nn.Module, float_model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
    """Run both models on every batch, in eval mode, and return how they differ.

    Nothing is kept but sums, in float64: data may be larger than memory. Both models' train/eval state is as before
    afterwards.

    Args:
        model: the quantized model: prepared, or converted and loaded.
        float_model: the model that it came from.
        batches: what `Source.batches()` gives.

    Raises:
        DataError: there is no sample.
        ModelError: the models' outputs differ in number or shape, or have nothing that can be compared.
        NonFiniteError: an output holds NaN or infinity.

    Source: SQNR = 10 log10(sum x^2 / sum (x - y)^2), as in torch.ao.ns.fx.utils.compute_sqnr, over all samples at once.

    Example:
        >>> batch = Batch(inputs=(torch.tensor([[3.0, 4.0]]),), labels=torch.tensor([1]))
        >>> scaled = torch.nn.Linear(2, 2, bias=False)
        >>> scaled.weight.data = torch.eye(2) * 1.1  # each output 10 % off
        >>> round(evaluate(scaled, torch.nn.Identity(), [batch]).sqnr_db, 2)
        20.0
    """
    sums = _Sums()
    with torch.no_grad(), _eval_mode(model), _eval_mode(float_model):
        for number, batch in enumerate(batches, start=1):
            expected = _outputs(float_model, batch, f"the float model's outputs of batch {number}")
            actual = _outputs(model, batch, f"the quantized model's outputs of batch {number}")
            _check_same_form(expected, actual)
            sums.add(expected, actual, batch)
    if sums.num_samples == 0:
        msg = "there is no sample to evaluate on: the data source is empty, or its `limit` or `select` leaves nothing"
        raise DataError(msg)
    return Evaluation(
        num_samples=sums.num_samples,
        num_labelled=sums.num_labelled,
        accuracy=_share(sums.num_right, sums.num_labelled),
        float_accuracy=_share(sums.num_float_right, sums.num_labelled),
        agreement=_share(sums.num_equal, sums.num_decisions),
        sqnr_db=sqnr_db(sums.signal, sums.noise),
        float_bytes=state_bytes(float_model),
    )


def evaluate_from_config(
    model: nn.Module, config: Config, *, on_batch: Callable[[int, int], None] | None = None
) -> Evaluation:
    """Build the config's float model, open its `data.evaluate`, and `evaluate` on it.

    Args:
        model: the quantized model.
        config: the config that it was prepared with.
        on_batch: called after each batch with the number of samples seen and of all samples.

    Raises:
        ConfigError: the config has no model or no `data.evaluate`.
    """
    source = evaluation_source(config)

    def counted() -> Iterator[Batch]:
        num_seen = 0
        for batch in source.batches():
            yield batch
            num_seen += len(batch)
            if on_batch is not None:
                on_batch(num_seen, len(source))

    return evaluate(model, build_model(config), counted())


def evaluation_source(config: Config) -> DataSource:
    """Open the data that a config evaluates on.

    Raises:
        ConfigError: the config has no model or no `data.evaluate`.
    """
    inputs = require_model(config).inputs
    if config.data.evaluate is None:
        problem = "data.evaluate: nothing found; evaluate needs a data source"
        raise ConfigError([f"{config.locate('data')}: {problem}"])
    return open_source(config.data.evaluate, inputs=inputs, base=config.base)


def sqnr_db(signal: float, noise: float) -> float:
    """Return the signal to noise ratio in dB of two sums of squares; infinity without noise.

    Example:
        >>> sqnr_db(100.0, 1.0), sqnr_db(4.0, 0.0), sqnr_db(0.0, 1.0)
        (20.0, inf, -inf)
    """
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    return 10 * math.log10(signal / noise)


def state_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's state dict, each storage counted once.

    Example:
        >>> state_bytes(torch.nn.Linear(3, 2))  # (3 * 2 + 2) * 4
        32
    """
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in module.state_dict().values()
        if isinstance(tensor, torch.Tensor)
    }
    return sum(storages.values())


@dataclass
class _Sums:
    """Everything that is kept from batch to batch."""

    num_samples: int = 0
    num_decisions: int = 0
    num_equal: int = 0
    num_labelled: int = 0
    num_right: int = 0
    num_float_right: int = 0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: list[torch.Tensor], actual: list[torch.Tensor], batch: Batch) -> None:
        self.num_samples += len(batch)
        for reference, output in zip(expected, actual, strict=True):
            reference64 = reference.to(torch.float64)
            self.signal += float(reference64.square().sum())
            self.noise += float((reference64 - output.to(torch.float64)).square().sum())
        if expected[0].dim() < 2 or expected[0].shape[1] < 2:
            return  # one number a sample: there is no class to choose
        float_classes, classes = expected[0].argmax(dim=1), actual[0].argmax(dim=1)
        self.num_decisions += classes.numel()
        self.num_equal += int((classes == float_classes).sum())
        if batch.labels is not None:
            _check_labels(batch.labels, classes, expected[0].shape[1])
            self.num_labelled += classes.numel()
            self.num_right += int((classes == batch.labels).sum())
            self.num_float_right += int((float_classes == batch.labels).sum())


def _outputs(model: nn.Module, batch: Batch, what: str) -> list[torch.Tensor]:
    tensors = [tensor for tensor in _tensors(model(*batch.inputs)) if tensor.is_floating_point()]
    if not tensors:
        msg = f"{what} hold no tensor of floats, so there is nothing to compare"
        raise ModelError(msg)
    for tensor in tensors:
        if not torch.isfinite(tensor).all():
            msg = f"{what} hold NaN or infinity, so no difference can be measured; look at the inputs and the weights"
            raise NonFiniteError(msg)
    return tensors


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of what a model returned, in order: a tensor, or sequences and mappings of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _check_same_form(expected: list[torch.Tensor], actual: list[torch.Tensor]) -> None:
    float_shapes, shapes = [tuple(t.shape) for t in expected], [tuple(t.shape) for t in actual]
    if float_shapes != shapes:
        msg = (
            f"the float model's outputs have shapes {float_shapes}, the quantized model's {shapes}; "
            "name the config that the file was prepared with"
        )
        raise ModelError(msg)


def _check_labels(labels: torch.Tensor, classes: torch.Tensor, num_classes: int) -> None:
    if labels.shape != classes.shape:
        found, needed = tuple(labels.shape), tuple(classes.shape)
        msg = f"labels have shape {found}, the model decides {needed}; give one label for each decision"
        raise DataError(msg)
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        msg = (
            f"labels lie in {int(labels.min())}..{int(labels.max())}, but the model has {num_classes} classes "
            f"(0..{num_classes - 1}); the labels are of another data set than the model's"
        )
        raise DataError(msg)


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, was_training in before:
            part.training = was_training
