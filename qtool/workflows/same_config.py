"""Whether a prepared model, or a checkpoint, is what a config asks to train: silently other would be silently wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from qtool.config.differences import differences
from qtool.config.load import config_from_mapping
from qtool.config.paths import without_folders
from qtool.errors import FileFormatError, ModelError, UsageError
from qtool.runtime.prepared import PreparedModel

if TYPE_CHECKING:
    from qtool.config.document import Tree
    from qtool.config.schema import Config
    from qtool.config.train import TrainConfig
    from qtool.training.checkpoint import Checkpoint


FREE = ("num_workers", "log_every", "keep", "memory")
"""The keys of `train` that change no bit of what is trained: a training may go on with others."""


def check_trainable(model: object, config: Config) -> PreparedModel:
    """Return the model, a prepared one with a graph to train, planned for the config's target and quantize.

    Raises:
        ModelError: it is another kind of model, or was prepared for calibration only.
        UsageError: it was planned for another target, or with other settings; they are named.
    """
    if not isinstance(model, PreparedModel):
        msg = "the model is converted already; train takes what `qtool prepare` wrote"
        raise ModelError(msg)
    found = model.origin.config.model_dump(mode="json", include={"target", "quantize"})
    wanted = config.model_dump(mode="json", include={"target", "quantize"})
    if other := differences(found, without_folders(wanted)):
        msg = (
            f"the model was prepared with another config: {'; '.join(other)}. Prepare it anew with this one, or train "
            "with the config that it was prepared with"
        )
        raise UsageError(msg)
    if not model.is_trainable:
        msg = "the model has no graph to train: prepare it with quantize.mode: qat"
        raise ModelError(msg)
    return model


def check_resumable(checkpoint: Checkpoint, config: Config, num_samples: int, *, allow_change: bool) -> None:
    """Compare a checkpoint with what it is to go on as.

    Args:
        checkpoint: where the training was interrupted.
        config: what it goes on with.
        num_samples: samples of `data.train` now.
        allow_change: let the bytes at the end be others: other keys of the config than target, quantize, `train.scales`
            and the kind of the optimizer may differ, the number of samples, and torch's version.

    Keys of `FREE` may always differ.

    Raises:
        FileFormatError: the checkpoint's config is none of a training.
        UsageError: something else differs, or nothing is left to train.
    """
    state, (found, trained_as) = checkpoint.state, _config_of(checkpoint)
    changes = differences(_tree(found), _tree(config))
    changes += differences(
        {"samples of data.train": state.num_samples, "torch": state.torch_version},
        {"samples of data.train": num_samples, "torch": str(torch.__version__)},
    )
    if changes and not allow_change:
        msg = (
            f"the checkpoint is of another training: {'; '.join(changes)}. Go on as it began, or with "
            "--allow-config-change, which no longer ends where an uninterrupted training would"
        )
        raise UsageError(msg)
    assert config.train is not None  # it is about to be trained
    kind = trained_as.optimizer.kind
    if kind != config.train.optimizer.kind:
        msg = f"the checkpoint's optimizer is of kind {kind!r}, whose state no other can take on; keep that kind"
        raise UsageError(msg)
    if trained_as.scales != config.train.scales:
        msg = f"the checkpoint was trained with train.scales: {trained_as.scales}, and has those parameters; keep that"
        raise UsageError(msg)
    if state.epoch > config.train.epochs:
        left = f"train.epochs is {config.train.epochs}: nothing is left to train"
        msg = f"the checkpoint has {state.epoch} epochs, and {left}"
        raise UsageError(msg)


def _config_of(checkpoint: Checkpoint) -> tuple[Config, TrainConfig]:
    """Return the config that a checkpoint was trained with, and its `train`.

    Raises:
        FileFormatError: it is no config of a training.
    """
    try:
        config = config_from_mapping(dict(json.loads(checkpoint.config_json)), "the checkpoint's config")
    except (ValueError, TypeError, RecursionError) as error:  # of JSON, of dict, and ConfigError
        msg = f"config.json: {error}"
        raise FileFormatError(msg) from error
    if config.train is None:
        msg = "config.json: it has no train"
        raise FileFormatError(msg)
    return config, config.train


def _tree(config: Config) -> Tree:
    """Return what a training follows from: the config without the free keys."""
    return config.model_dump(mode="json", exclude={"train": set(FREE)})
