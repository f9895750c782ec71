"""Whether a prepared model, or a checkpoint, is what a config asks to train: silently other would be silently wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from qtool.config.differences import differences
from qtool.config.load import config_from_mapping
from qtool.config.paths import without_folders
from qtool.errors import MismatchError, ModelError
from qtool.runtime.prepared import PreparedModel

if TYPE_CHECKING:
    from qtool.config.document import Tree
    from qtool.config.schema import Config
    from qtool.training.checkpoint import Checkpoint


def check_trainable(model: object, config: Config) -> PreparedModel:
    """Return the model, a prepared one with a graph to train, planned for the config's target and quantize.

    Raises:
        ModelError: it is another kind of model, or was prepared for calibration only.
        MismatchError: it was planned for another target, or with other settings; they are named.
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
        raise MismatchError(msg)
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
        allow_change: let other keys than target and quantize differ.

    Raises:
        MismatchError: a key of the config differs, the data has another size, or nothing is left to train.
    """
    found = config_from_mapping(json.loads(checkpoint.config_json), "the checkpoint's config.json")
    if not allow_change and (other := differences(_tree(found), _tree(config))):
        msg = (
            f"the checkpoint is of another config: {'; '.join(other)}. Go on with the config it began with, or with "
            "--allow-config-change, which no longer ends where an uninterrupted training would"
        )
        raise MismatchError(msg)
    if not allow_change and checkpoint.state.num_samples != num_samples:
        msg = (
            f"data.train has {num_samples} samples, and had {checkpoint.state.num_samples} at the checkpoint: the "
            "order would be another one. Bring the data back, or go on with --allow-config-change"
        )
        raise MismatchError(msg)
    epochs = 0 if config.train is None else config.train.epochs
    if checkpoint.state.epoch > epochs:
        done = checkpoint.state.epoch
        msg = f"the checkpoint has {done} epochs, and train.epochs is {epochs}: nothing is left to train"
        raise MismatchError(msg)


def _tree(config: Config) -> Tree:
    tree: Tree = json.loads(config.to_json())
    return tree
