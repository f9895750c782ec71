"""A training from epoch to epoch: train, evaluate, keep the best; and all of it as a checkpoint, and back."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from qtool.errors import FileFormatError
from qtool.runtime.store import to_bytes
from qtool.training.checkpoint import FORMAT_VERSION, Checkpoint, State
from qtool.training.evaluation import score
from qtool.training.loop import train_epoch
from qtool.training.metrics import END, EPOCH, START, Record
from qtool.training.optimizer import load_state_arrays, state_arrays, trained_parameters
from qtool.training.random_state import random_arrays, set_random_arrays

if TYPE_CHECKING:
    from qtool.data.sources import DataSource
    from qtool.training.loop import Training


@dataclass(frozen=True)
class Candidate:
    """A model of some epoch that may be the one that is written: its file's bytes, and its accuracy if measured."""

    epoch: int
    accuracy: float | None
    data: bytes


class Run:
    """A training on its way.

    Args:
        training: model, optimizer, data.
        config_json: the settled config, for checkpoints.
        evaluation: what accuracy is measured on; None measures none.

    Attributes:
        epoch: number of complete epochs.
        accuracy: measured after the last of them; None if it was not.
        best: the most accurate model so far, if the config asks for it.
    """

    def __init__(self, training: Training, config_json: str, evaluation: DataSource | None) -> None:
        self._training = training
        self._config_json = config_json
        self._evaluation = evaluation
        self.epoch = 0
        self.accuracy: float | None = None
        self.best: Candidate | None = None
        self._last: Candidate | None = None

    def start(self) -> None:
        """Say that it begins, or goes on."""
        self._training.on_record(self._record(START))

    def next_epoch(self) -> None:
        """Train for an epoch; evaluate, if it is the turn.

        Raises:
            NonFiniteError: the loss is NaN or infinite.
            DataError: samples cannot be read.
        """
        settings, epoch = self._training.settings, self.epoch + 1
        record = replace(train_epoch(self._training, epoch), event=EPOCH)
        is_due = epoch % settings.evaluate_every == 0 or epoch == settings.epochs
        self.epoch, self.accuracy = epoch, None
        if self._evaluation is not None and is_due:
            found = score(self._training.model, self._evaluation.batches(), self._training.device)
            self.accuracy = found.accuracy
            record = replace(record, evaluate_accuracy=found.accuracy, evaluate_loss=found.loss)
            if settings.select == "best" and found.accuracy > self._best_accuracy():
                self.best = self._current()
        self._training.on_record(replace(record, seconds=time.monotonic() - self._training.started))

    def finish(self) -> Candidate:
        """Say that it ends, and return the model that is to be written."""
        chosen = self.best or self._current()
        self._training.on_record(self._record(END, evaluate_accuracy=chosen.accuracy))
        return chosen

    def checkpoint(self) -> Checkpoint:
        """Return the state after the last complete epoch."""
        last, best = self._current(), self.best
        state = State(
            format_version=FORMAT_VERSION,
            epoch=self.epoch,
            num_samples=len(self._training.batches.source),
            parameters=tuple(trained_parameters(self._training.model)),
            torch_version=torch.__version__,
            accuracy=last.accuracy,
            best_epoch=None if best is None else best.epoch,
            best_accuracy=None if best is None else best.accuracy,
        )
        return Checkpoint(
            state=state,
            config_json=self._config_json,
            model=last.data,
            best=None if best is None or best.epoch == self.epoch else best.data,
            optimizer=state_arrays(self._training.optimizer),
            random=random_arrays(),
        )

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on after a checkpoint; the training's model is the checkpoint's already.

        Raises:
            FileFormatError: the parts of the checkpoint do not belong together.
        """
        state = checkpoint.state
        if state.parameters != tuple(trained_parameters(self._training.model)):
            msg = "the checkpoint's optimizer state is of other parameters than its model's; resume from another one"
            raise FileFormatError(msg)
        load_state_arrays(self._training.optimizer, checkpoint.optimizer)
        set_random_arrays(checkpoint.random)
        self.epoch, self.accuracy = state.epoch, state.accuracy
        self._last = Candidate(state.epoch, state.accuracy, checkpoint.model)
        if state.best_epoch is not None:
            self.best = Candidate(state.best_epoch, state.best_accuracy, checkpoint.best or checkpoint.model)

    def _best_accuracy(self) -> float:
        return -1.0 if self.best is None or self.best.accuracy is None else self.best.accuracy

    def _current(self) -> Candidate:
        """Return the model after the last epoch, made into a file once: that takes a while, and knows no device."""
        if self._last is None or self._last.epoch != self.epoch:
            model = self._training.model
            model.eval()
            model.cpu()
            self._last = Candidate(self.epoch, self.accuracy, to_bytes(model))
            model.to(self._training.device)
        return self._last

    def _record(self, event: str, *, evaluate_accuracy: float | None = None) -> Record:
        epochs, num_batches = self._training.settings.epochs, self._training.batches.num_batches
        return Record(
            event=event,
            epoch=self.epoch,
            epochs=epochs,
            step=self.epoch * num_batches,
            steps=epochs * num_batches,
            evaluate_accuracy=evaluate_accuracy,
            seconds=time.monotonic() - self._training.started,
        )
