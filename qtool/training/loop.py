"""One epoch of training: its phase, and then for each batch forward, loss, backward, step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.errors import DataError, NonFiniteError, SmallBatchError
from qtool.training.batches import worker_deaths_named
from qtool.training.loss import check_labels, class_scores, labels_of
from qtool.training.metrics import STEP, Record
from qtool.training.optimizer import set_learning_rate, trained_parameters
from qtool.training.phase import enter, phase_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from qtool.config.train import TrainConfig
    from qtool.data.batch import Batch
    from qtool.training.batches import TrainingBatches
    from qtool.training.loss import Loss
    from qtool.training.schedule import LearningRate

OnRecord = Callable[[Record], None]
_LOOK = "; if it is the first step, look at the data and the weights"


@dataclass(frozen=True, kw_only=True)
class Training:
    """What every epoch of a training needs. What changes lies in the model, the optimizer and torch's generators.

    Attributes:
        model: on `device`; a prepared model for qat.
        optimizer: of its parameters.
        batches: the shuffled batches of `data.train`.
        loss: called with outputs and labels.
        rate: learning rate of each step.
        settings: the config's `train`.
        device: where the model is.
        on_record: told of every step.
        started: `time.monotonic()` at the beginning of the run.
    """

    model: Any
    optimizer: Optimizer
    batches: TrainingBatches
    loss: Loss
    rate: LearningRate
    settings: TrainConfig
    device: torch.device
    on_record: OnRecord
    started: float = field(default_factory=time.monotonic)


@worker_deaths_named()
def train_epoch(training: Training, epoch: int) -> Record:
    """Train the model for one epoch, counted from 1, and return the record of its last step.

    Raises:
        NonFiniteError: the loss, or a parameter at the end, is NaN or infinite.
        DataError: a sample cannot be read, has no label, or a label that is no class of the model; or a batch norm has
            one value per channel in a batch; or a worker process died.
    """
    phase = phase_of(epoch, training.settings)
    enter(training.model, phase)
    num_batches, epochs = training.batches.num_batches, training.settings.epochs
    seen, total, began = 0, 0.0, time.monotonic()
    right: int | None = 0
    for number, batch in enumerate(training.batches.of(epoch)):
        step = (epoch - 1) * num_batches + number
        lr = training.rate.at(step)
        set_learning_rate(training.optimizer, lr)
        loss, num_right = _train_step(training, batch, f"epoch {epoch}, step {step + 1}")
        seen, total = seen + len(batch), total + loss * len(batch)
        right = None if right is None or num_right is None else right + num_right
        now = time.monotonic()
        record = Record(
            event=STEP,
            epoch=epoch,
            epochs=epochs,
            step=step + 1,
            steps=epochs * num_batches,
            phase=phase.value,
            lr=lr,
            loss=total / seen,
            accuracy=None if right is None else right / seen,
            samples_per_second=seen / max(now - began, 1e-9),
            seconds=now - training.started,
        )
        training.on_record(record)
    _check_parameters(training.model, epoch, training.settings)
    return record


def _train_step(training: Training, batch: Batch, where: str) -> tuple[float, int | None]:
    """Change the parameters once; return the loss, and how many samples the model chose the right class of, if any."""
    given = labels_of(batch, "data.train")
    labels = given.to(training.device)
    training.optimizer.zero_grad()
    is_cast = training.settings.autocast == "bfloat16"
    with torch.autocast(training.device.type, dtype=torch.bfloat16, enabled=is_cast):
        try:
            outputs = training.model(*(tensor.to(training.device) for tensor in batch.inputs))
        except NonFiniteError as error:
            raise _diverged(where, str(error), training.settings, advice="") from error
        except SmallBatchError as error:
            msg = (
                f"{where}: {error.found}; set data.train.batch_size to at least 2, or let batch norms keep their "
                "statistics: train.freeze_batch_norm_after: 0"
            )
            raise DataError(msg) from error
        check_labels(given, outputs)
        loss = training.loss(outputs, labels)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(where, f"the loss is {value}", training.settings)
    loss.backward()
    if training.settings.clip_grad_norm is not None:
        nn.utils.clip_grad_norm_(trained_parameters(training.model).values(), training.settings.clip_grad_norm)
    training.optimizer.step()
    return value, _num_right(outputs, labels)


def _num_right(outputs: object, labels: Tensor) -> int | None:
    scores = class_scores(outputs)
    return None if scores is None else int((scores.detach().argmax(dim=1) == labels).sum())


def _check_parameters(model: nn.Module, epoch: int, settings: TrainConfig) -> None:
    for name, parameter in trained_parameters(model).items():
        if not torch.isfinite(parameter).all():
            where, what = f"epoch {epoch}", f"the parameter {name!r} holds NaN or infinity after the last step"
            raise _diverged(where, what, settings)


def _diverged(where: str, what: str, settings: TrainConfig, advice: str = _LOOK) -> NonFiniteError:
    return NonFiniteError(
        f"{where}: {what}; nothing was written. Lower train.optimizer.lr (it is {settings.optimizer.lr:g}), begin "
        f"with train.schedule.warmup_epochs, or set train.clip_grad_norm{advice}"
    )
