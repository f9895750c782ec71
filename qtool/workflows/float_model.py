"""The float model a config describes: built by its factory, with its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from qtool.capture.checkpoint import load_checkpoint
from qtool.capture.sizes import example_sizes
from qtool.config.paths import resolve_path
from qtool.data.user_code import import_attribute, user_code
from qtool.errors import ConfigError, ModelError
from qtool.stamp.schema import InputStamp

if TYPE_CHECKING:
    from qtool.config.schema import Config, ModelConfig

EXAMPLE_BATCH = 2
"""Batch of example inputs: torch.export would specialise on 1."""


def build_model(config: Config) -> nn.Module:
    """Return the config's float model in eval mode, with its weights.

    Raises:
        ConfigError: the config names no model.
        DataError: the factory cannot be imported, or raises.
        ModelError: it returns no module, or the checkpoint does not fit it.
    """
    model_config = require_model(config)
    factory = import_attribute(model_config.factory)
    kwargs = {name: _resolved(value, config) for name, value in model_config.kwargs.items()}
    if model_config.weights is not None:
        kwargs["weights"] = model_config.weights
    with user_code(model_config.factory, "building the model"):
        model = factory(**kwargs)
    if not isinstance(model, nn.Module):
        msg = f"factory {model_config.factory!r} returned {type(model).__name__}, not a torch.nn.Module"
        raise ModelError(msg)
    if model_config.checkpoint is not None:
        path = resolve_path(model_config.checkpoint, config.base)
        load_checkpoint(model, path, key=model_config.checkpoint_key)
    return model.eval()


def require_model(config: Config) -> ModelConfig:
    """Return the config's model section.

    Raises:
        ConfigError: there is none.
    """
    if config.model is None:
        raise ConfigError([f"{config.locate('model')}: model: nothing found; a factory and its inputs are needed"])
    return config.model


def input_stamps(model_config: ModelConfig) -> tuple[InputStamp, ...]:
    """Return name, shape and dtype of the inputs that the config states."""
    return tuple(InputStamp(name=i.name, shape=tuple(i.shape), dtype=i.dtype) for i in model_config.inputs)


def example_inputs(inputs: tuple[InputStamp, ...]) -> tuple[torch.Tensor, ...]:
    """Return a tensor of zeros for each input, in a batch of 2 where the batch is dynamic."""
    return tuple(torch.zeros(example_sizes(i, batch=EXAMPLE_BATCH), dtype=getattr(torch, i.dtype)) for i in inputs)


def _resolved(value: Any, config: Config) -> Any:  # noqa: ANN401 - an argument of the user's factory
    """Resolve `package:` paths among the factory's arguments; everything else is passed as it is."""
    if isinstance(value, str) and value.startswith("package:"):
        return str(resolve_path(value, config.base))
    return value
