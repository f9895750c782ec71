"""Train: from a config to a model trained on its grids, from the beginning or from where it was interrupted."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from qtool.data.sources import open_source
from qtool.errors import ConfigError, DataError, UncalibratedError, UsageError
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.runtime.store import from_bytes
from qtool.training.batches import TrainingBatches
from qtool.training.checkpoint import BEST, from_file
from qtool.training.loop import Training
from qtool.training.loss import make_loss
from qtool.training.metrics import MetricsFile
from qtool.training.optimizer import make_optimizer
from qtool.training.run import Run
from qtool.training.schedule import LearningRate
from qtool.workflows.checkpoints import CheckpointFolder, damage_named, last_checkpoint
from qtool.workflows.float_model import require_model
from qtool.workflows.prepare import prepare_from_config
from qtool.workflows.same_config import check_resumable, check_trainable
from qtool.workflows.seed import seed_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from qtool.config.schema import Config
    from qtool.config.train import TrainConfig
    from qtool.data.sources import DataSource
    from qtool.plan import Plan
    from qtool.runtime.prepared import PreparedModel
    from qtool.training.checkpoint import Checkpoint
    from qtool.training.loop import OnRecord
    from qtool.training.metrics import Record
    from qtool.training.run import Candidate

    OnBatch = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training gave.

    Attributes:
        data: the file of the trained model; `qtool.load(data)` is the model.
        plan: its plan.
        epoch: the epoch it is from.
        epochs: epochs of the whole training.
        accuracy: of the fake-quantized model on data.evaluate, 0..1; None if it was not evaluated.
    """

    data: bytes
    plan: Plan
    epoch: int
    epochs: int
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a training reads and writes besides its result.

    Attributes:
        resume: a checkpoint, or a folder of them, to go on from.
        checkpoints: folder that a checkpoint is written to after each epoch; None takes `resume`, if that is a folder.
        metrics: file that records are appended to.
    """

    resume: Path | None = None
    checkpoints: Path | None = None
    metrics: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of checkpoints, if any are written."""
        is_folder = self.resume is not None and self.resume.is_dir()
        return self.resume if self.checkpoints is None and is_folder else self.checkpoints


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """What is told of the progress.

    Attributes:
        on_batch: of calibration: samples seen, and samples in all.
        on_record: of the start, each step, each epoch and the end.
    """

    on_batch: OnBatch | None = None
    on_record: OnRecord | None = None


def train_from_config(
    config: Config,
    prepared: PreparedModel | None = None,
    *,
    files: Files | None = None,
    listeners: Listeners | None = None,
    allow_config_change: bool = False,
) -> Trained:
    """Train a model as a config says; the same config gives the same bytes, also when interrupted and resumed.

    Args:
        config: a config with a model, `quantize.mode: qat`, `train` and `data.train`.
        prepared: the model to begin with, prepared with the same target and quantize; it is changed. None prepares
            the config's model, and calibrates it if there is `data.calibrate`. It has no meaning in a resume.
        files: what to go on from, checkpoints, metrics.
        listeners: what is told of the progress.
        allow_config_change: go on from a checkpoint of another config; target and quantize must be the same.

    Raises:
        ConfigError: the config has no model, no `train` or no `data.train`.
        UsageError: the prepared model or the checkpoint is of another config, a file cannot be read or written, there
            is no such device, or several processes are asked for.
        FileFormatError: the checkpoint is damaged.
        DataError: samples cannot be read, or have no labels.
        UncalibratedError: ranges are learned, or frozen from the first epoch, and nothing has set them.
        NonFiniteError: the loss is NaN or infinite.
    """
    settings, files, listeners = _settings_of(config), files or Files(), listeners or Listeners()
    _check_alone()
    device = _device_of(settings)
    batches = TrainingBatches(source=_training_source(config), settings=settings)
    evaluation = _evaluation_source(config)
    loss = make_loss(settings, where=f"{config.locate('train.loss')}: train.loss")
    file = None if files.resume is None else last_checkpoint(files.resume)
    with damage_named(file):
        checkpoint = None if file is None else from_file(file)
        if checkpoint is not None:
            check_resumable(checkpoint, config, len(batches.source), allow_change=allow_config_change)
    folder = None if files.folder is None else CheckpointFolder(files.folder, settings.keep)
    if folder is not None:
        folder.open(0 if checkpoint is None else checkpoint.state.epoch)
    with _records(files, settings, listeners) as on_record:
        with damage_named(file):
            first = _first_model(config, prepared, checkpoint, listeners)
        model = check_trainable(first, config)
        _check_has_ranges(model, settings)
        model.set_memory(settings.memory)
        model.learn_scales(settings.scales == "learned")
        model.origin = replace(model.origin, config_digest=config.digest())
        seed_everything(settings.seed)
        training = Training(
            model=model.to(device),
            optimizer=make_optimizer(model, settings.optimizer),
            batches=batches,
            loss=loss,
            rate=_rate(settings, batches),
            settings=settings,
            device=device,
            on_record=on_record,
        )
        run = Run(training, config.to_json(), evaluation)
        if checkpoint is not None:
            with damage_named(file):
                run.resume(checkpoint)
        chosen = _run_to_the_end(run, settings, folder)
    return Trained(
        data=chosen.data, plan=model.plan, epoch=chosen.epoch, epochs=settings.epochs, accuracy=chosen.accuracy
    )


def _run_to_the_end(run: Run, settings: TrainConfig, folder: CheckpointFolder | None) -> Candidate:
    """Train all epochs that are left; whatever ends it early carries a note of the last checkpoint."""
    run.start()
    try:
        while run.epoch < settings.epochs:
            run.next_epoch()
            if folder is not None:
                folder.write(run.checkpoint())
    except BaseException as error:
        if folder is not None and (last := folder.last()) is not None:
            error.add_note(f"{last} holds what was trained before; go on with --resume {folder.path}")
        raise
    return run.finish()


def _first_model(
    config: Config, prepared: PreparedModel | None, checkpoint: Checkpoint | None, listeners: Listeners
) -> object:
    if checkpoint is not None:
        if checkpoint.best is not None:
            # It may become the result as it is, and nothing else would look into it.
            check_loadable(read_qtool_file(checkpoint.best, where=BEST))
        return from_bytes(checkpoint.model)
    if prepared is not None:
        return prepared
    assert config.train is not None
    seed_everything(config.train.seed)
    return prepare_from_config(config, on_batch=listeners.on_batch)


def _check_has_ranges(model: PreparedModel, settings: TrainConfig) -> None:
    """Refuse to freeze or learn ranges that are not known: the training would be one in float.

    Raises:
        UncalibratedError: ranges are learned, or frozen from the first epoch, and some edge has none.
    """
    missing = model.uncalibrated()
    unknown = f"{len(missing)} of {len(model.activations)} ranges are not known"
    if missing and settings.scales == "learned":
        msg = (
            f"train.scales is 'learned', and {unknown}: name data.calibrate, for scales are learned from what it finds"
        )
        raise UncalibratedError(msg, missing)
    if missing and settings.freeze_observers_after == 0:
        msg = f"train.freeze_observers_after is 0, and {unknown}: name data.calibrate, or let them follow for an epoch"
        raise UncalibratedError(msg, missing)


@contextmanager
def _records(files: Files, settings: TrainConfig, listeners: Listeners) -> Iterator[OnRecord]:
    """Yield what tells everybody of a record: the file of metrics first, then the listener."""
    with ExitStack() as stack:
        told: list[OnRecord] = []
        if files.metrics is not None:
            told.append(stack.enter_context(MetricsFile(files.metrics, every=settings.log_every)).write)
        if listeners.on_record is not None:
            told.append(listeners.on_record)

        def on_record(record: Record) -> None:
            for tell in told:
                tell(record)

        yield on_record


def _settings_of(config: Config) -> TrainConfig:
    missing = [
        f"{config.locate(key)}: {key}: nothing found; {needed}"
        for key, found, needed in (
            ("train", config.train, "needed: how the model is trained, epochs at least, with quantize.mode: qat"),
            ("data.train", config.data.train, "training needs a data source"),
        )
        if found is None
    ]
    if config.train is None or missing:
        raise ConfigError(missing)
    require_model(config)
    return config.train


def _check_alone() -> None:
    """Refuse to be one of several processes: each would train the whole model and write the same files.

    Raises:
        UsageError: a launcher such as torchrun has set WORLD_SIZE above 1.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    if world != "1":
        msg = f"WORLD_SIZE is {world!r}, as torchrun sets it; qtool trains in one process: start it without a launcher"
        raise UsageError(msg)


def _device_of(settings: TrainConfig) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if settings.device == "cuda" and not has_cuda:
        msg = "train.device is 'cuda', and this torch sees no GPU; --set train.device=cpu trains without one"
        raise UsageError(msg)
    return torch.device("cuda" if has_cuda and settings.device != "cpu" else "cpu")


def _rate(settings: TrainConfig, batches: TrainingBatches) -> LearningRate:
    return LearningRate(
        schedule=settings.schedule,
        lr=settings.optimizer.lr,
        epochs=settings.epochs,
        steps_per_epoch=batches.num_batches,
    )


def _training_source(config: Config) -> DataSource:
    assert config.data.train is not None  # _settings_of says so
    return open_source(config.data.train, inputs=require_model(config).inputs, base=config.base)


def _evaluation_source(config: Config) -> DataSource | None:
    """Return `data.evaluate`, opened; None without it, or without labels, which `qtool evaluate` can do without.

    Raises:
        DataError: the most accurate model is asked for, and there are no labels.
    """
    if config.data.evaluate is None:
        return None
    source = open_source(config.data.evaluate, inputs=require_model(config).inputs, base=config.base)
    if next(source.batches()).labels is not None:
        return source
    if config.train is not None and config.train.select == "best":
        msg = "train.select is 'best', and data.evaluate has no labels to tell the best model by; set select: last"
        raise DataError(msg)
    return None
