"""Bench: what a training step of a person's own model costs, in float and in each memory mode, on this machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from qtool.capture.sizes import example_sizes
from qtool.config.load import changed
from qtool.data.sources import open_source
from qtool.errors import DataError, ModelError, UsageError
from qtool.training.loss import class_scores, make_loss
from qtool.training.malloc import Malloc, malloc_in_words
from qtool.training.resident_size import can_measure, peak_source
from qtool.training.step_cost import StepCost, TrainingStep, compare
from qtool.types import Memory
from qtool.workflows.calibrate import calibrate
from qtool.workflows.float_model import build_model, require_model
from qtool.workflows.prepare import prepare_from_config

if TYPE_CHECKING:
    from qtool.config.schema import Config
    from qtool.data.batch import Batch
    from qtool.runtime.prepared import PreparedModel
    from qtool.stamp.schema import InputStamp

FLOAT = "float"
MOMENTUM = 0.9
RATE = 1e-4
"""Of the SGD that takes the steps: small, so that the weights stay what they are."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured.

    Attributes:
        batch_size: samples in a batch.
        rounds: steps timed of each way, at least 1.
        modes: memory modes, in this order.
        channels_last: whether float and quantized models, and four-dimensional inputs, are laid out so.
        seed: of random inputs and labels.
    """

    batch_size: int = 8
    rounds: int = 11
    modes: tuple[Memory, ...] = tuple(Memory)
    channels_last: bool = False
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What was measured, and how.

    Attributes:
        costs: float first, then the modes.
        shapes: of the inputs.
        memory_format: `contiguous` or `channels_last`, of float too.
        data: where the inputs came from.
        num_threads: that torch used.
        malloc: the fixed setting, under which all but the default peak was measured.
        peak_source: where peaks come from.
        rounds: steps timed of each.
    """

    costs: tuple[StepCost, ...]
    shapes: tuple[tuple[int, ...], ...]
    memory_format: str
    data: str
    num_threads: int
    malloc: str
    peak_source: str
    rounds: int


@dataclass(frozen=True, kw_only=True)
class _Task:
    """What is stepped: inputs, the loss of the outputs, and where the inputs came from."""

    inputs: tuple[Any, ...]
    loss: Callable[[Any], Tensor]
    data: str


OnStep = Callable[[int, int], None]


def bench(prepared: PreparedModel, settings: BenchSettings, *, on_step: OnStep | None = None) -> Bench:
    """Measure a prepared model in each memory mode beside the float model it was captured from, on random inputs.

    The cross entropy with random labels is followed, or the mean square of all outputs where they are no scores of
    classes. Ranges that are not known are calibrated on the inputs first. `prepared` itself is left as it is. The
    process's malloc keeps the setting that is measured under.

    Args:
        prepared: prepared with `quantize.mode: qat`; trained or not.
        settings: what is measured.
        on_step: told the number of steps done, and of all.

    Raises:
        UsageError: it cannot be trained, has another batch size, or this system does not tell the size of a process.
        ModelError: it returns nothing that a gradient can start from.
    """
    _check_can_measure()
    _check_trainable(prepared)
    program = prepared.current_program()
    model = copy.deepcopy(program.training_graph_module()).train()
    return _compare(model, prepared, _random_task(prepared, settings), settings, on_step)


def bench_from_config(config: Config, settings: BenchSettings, *, on_step: OnStep | None = None) -> Bench:
    """Prepare a config's model for training, and measure it like `bench`, beside the model that its factory builds.

    The batch is the first of `data.train`, followed by the loss of `train`, if there are any.

    Raises:
        ConfigError: the config has no model.
        DataError: `data.train` has fewer samples than a batch.
    """
    _check_can_measure()
    require_model(config)
    trained = changed(config, {"quantize.mode": "qat"}, "qtool bench")
    prepared = prepare_from_config(trained)
    task = _task_of(config, settings) or _random_task(prepared, settings)
    return _compare(build_model(config).train(), prepared, task, settings, on_step)


def training_steps(
    model: nn.Module,
    prepared: PreparedModel,
    inputs: tuple[Any, ...],
    loss: Callable[[Any], Tensor],
    settings: BenchSettings,
) -> list[TrainingStep]:
    """Return the steps to compare: of the float model, then of a copy of the prepared one for each mode.

    Args:
        model: the float model, in train mode; it is trained as it is.
        prepared: calibrated, or it is calibrated here, on the inputs.
        inputs: what both are called with.
        loss: from what they return to a scalar.
        settings: modes and memory format.
    """
    if prepared.uncalibrated():
        calibrate(prepared, [inputs])
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    laid_out = pytree.tree_map_only(Tensor, lambda x: x.contiguous(memory_format=layout) if x.dim() == 4 else x, inputs)
    models = {FLOAT: model, **{mode.value: _in_mode(prepared, mode) for mode in settings.modes}}
    return [
        TrainingStep(
            name=name,
            model=(one.to(memory_format=layout) if settings.channels_last else one),
            optimizer=torch.optim.SGD(one.parameters(), lr=RATE, momentum=MOMENTUM),
            inputs=laid_out,
            loss=loss,
        )
        for name, one in models.items()
    ]


def stand_in_loss(seed: int = 0) -> Callable[[Any], Tensor]:
    """Return a loss for outputs without labels: cross entropy with random ones, or the mean square of the outputs."""
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[torch.Size, Tensor] = {}

    def loss(outputs: object) -> Tensor:
        scores = class_scores(outputs)
        if scores is None:
            return _mean_square(outputs)
        if scores.shape not in drawn:
            drawn[scores.shape] = torch.randint(scores.shape[1], scores.shape[:1], generator=generator)
        return functional.cross_entropy(scores, drawn[scores.shape])

    return loss


def _mean_square(outputs: object) -> Tensor:
    tensors = [leaf for leaf in _leaves(outputs) if leaf.is_floating_point() and leaf.requires_grad]
    if not tensors:
        msg = "the model returns no tensor of floats with a gradient, so there is no step to measure"
        raise ModelError(msg)
    total = tensors[0].float().square().mean()
    for tensor in tensors[1:]:
        total = total + tensor.float().square().mean()
    return total


def _leaves(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _leaves(item)


def _compare(
    model: nn.Module, prepared: PreparedModel, task: _Task, settings: BenchSettings, on_step: OnStep | None
) -> Bench:
    steps = training_steps(model, prepared, task.inputs, task.loss, settings)
    costs = compare(steps, rounds=settings.rounds, on_step=on_step)
    tensors = [leaf for leaf in pytree.tree_leaves(task.inputs) if isinstance(leaf, Tensor)]
    return Bench(
        costs=tuple(costs),
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        memory_format="channels_last" if settings.channels_last else "contiguous",
        data=task.data,
        num_threads=torch.get_num_threads(),
        malloc=malloc_in_words(Malloc.RETURN),
        peak_source=peak_source(),
        rounds=settings.rounds,
    )


def _in_mode(prepared: PreparedModel, mode: Memory) -> PreparedModel:
    one = copy.deepcopy(prepared)
    one.set_memory(mode)
    return one.train()


def _random_task(prepared: PreparedModel, settings: BenchSettings) -> _Task:
    generator = torch.Generator().manual_seed(settings.seed)
    tensors = [_drawn(stamp, settings.batch_size, generator) for stamp in prepared.program.inputs]
    return _Task(inputs=prepared.program.call.arrange(tensors), loss=stand_in_loss(settings.seed), data="random inputs")


def _drawn(stamp: InputStamp, batch_size: int, generator: torch.Generator) -> Tensor:
    sizes = example_sizes(stamp, batch=batch_size)
    if sizes[:1] != [batch_size] and stamp.shape:
        msg = (
            f"the batch size {batch_size} is not that of the model's input {stamp.name!r}, which was captured with a "
            f"fixed one: give --batch-size {sizes[0]}, or prepare the model with a dynamic batch"
        )
        raise UsageError(msg)
    dtype = getattr(torch, stamp.dtype)
    if not dtype.is_floating_point:
        return torch.zeros(sizes, dtype=dtype)  # indices: 0 is the one that is always allowed
    return torch.randn(sizes, generator=generator, dtype=dtype)


def _task_of(config: Config, settings: BenchSettings) -> _Task | None:
    """Return the first batch of `data.train` and the loss of `train`; None without such data."""
    if config.data.train is None:
        return None
    sized = changed(config, {"data.train.batch_size": settings.batch_size}, "--batch-size")
    assert sized.data.train is not None
    source = open_source(sized.data.train, inputs=require_model(config).inputs, base=config.base)
    batch = next(source.batches(), None)
    if batch is None or len(batch) < settings.batch_size:
        found = 0 if batch is None else len(batch)
        msg = f"data.train has {found} samples and a batch of {settings.batch_size} is asked for: give --batch-size"
        raise DataError(msg)
    return _Task(
        inputs=batch.inputs, loss=_loss_of(config, batch, settings), data=f"data.train ({config.data.train.kind})"
    )


def _loss_of(config: Config, batch: Batch, settings: BenchSettings) -> Callable[[Any], Tensor]:
    labels = batch.labels
    if labels is None or config.train is None:
        return stand_in_loss(settings.seed)
    labelled = make_loss(config.train, where=f"{config.locate('train.loss')}: train.loss")
    return lambda outputs: labelled(outputs, labels)


def _check_trainable(prepared: PreparedModel) -> None:
    if not prepared.is_trainable:
        msg = (
            "the model was prepared with quantize.mode 'ptq', so it has no training step to measure; "
            "give the config instead, or prepare it with --set quantize.mode=qat"
        )
        raise UsageError(msg)


def _check_can_measure() -> None:
    if not can_measure():
        msg = "this system has no /proc/self/statm to tell a process's resident size, so no peak can be measured"
        raise UsageError(msg)
