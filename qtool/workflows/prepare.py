"""Prepare: from a float model and a config to a prepared model, calibrated if the config says on what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping, load_config
from qtool.data.sources import open_source
from qtool.errors import UsageError
from qtool.passes.plan_program import plan_program
from qtool.runtime.origin import Origin, source_digest
from qtool.runtime.prepared import PreparedModel
from qtool.workflows.calibrate import calibrate
from qtool.workflows.float_model import build_model, example_inputs, input_stamps, require_model
from qtool.workflows.per_node_range import reduced_per_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from qtool.capture.program import FloatProgram
    from qtool.config.schema import Config
    from qtool.plan import Plan

    OnBatch = Callable[[int, int], None]


@torch.inference_mode(False)  # what is made here is trained later, which inference tensors refuse
def prepare(
    model: nn.Module,
    example_inputs: Any,  # noqa: ANN401 - a tensor, or a tuple of tensors and containers of them
    config: Config | Mapping[str, Any] | Path | str,
    *,
    dynamic_batch: bool = True,
) -> PreparedModel:
    """Return the model with an observer and a fake-quantize at every edge that the target runs in int8.

    The model itself is left as it was: the result has a copy of its weights.

    Args:
        model: a float32 model; it is captured in eval mode.
        example_inputs: what the model is called with: a tensor, or a tuple of positional arguments.
        config: path of a config file, or a mapping of the same keys, `model` left out.
        dynamic_batch: whether dimension 0 of the inputs may take other sizes later; a config that describes the
            inputs (`model.inputs`) says it itself.

    Raises:
        ConfigError: the config is wrong; every fault is named with its place.
        CaptureError: the model cannot be captured; the message names the line of its code.
        UsageError: the backend cannot do what the config asks for, or the model is no module.

    Example:
        >>> config = {"target": {"backend": "fbgemm"}}
        >>> prepared = qtool.prepare(model, torch.zeros(1, 3, 224, 224), config)
        >>> qtool.calibrate(prepared, batches)
        10
        >>> qtool.save(qtool.convert(prepared), "int8.pt2")
    """
    _check_is_module(model)
    settled = _settled(config)
    arguments = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    stated = () if settled.model is None else input_stamps(settled.model)
    inputs = stated or describe_inputs(arguments, dynamic_batch=dynamic_batch)
    return prepare_program(capture(model, arguments, inputs, training=_is_trained(settled)), settled)


def prepare_from_config(config: Config, *, on_batch: OnBatch | None = None) -> PreparedModel:
    """Return the prepared model of a config, calibrated on `data.calibrate` if there is one.

    Args:
        config: a config with a model.
        on_batch: called after each batch with the number of samples seen and of all samples.
    """
    prepared = prepare_program(program_from_config(config), config)
    if config.data.calibrate is not None:
        inputs = require_model(config).inputs
        source = open_source(config.data.calibrate, inputs=inputs, base=config.base)
        calibrate(prepared, source.batches(), on_batch=on_batch and (lambda seen: on_batch(seen, len(source))))
        return prepared if prepared.uncalibrated() else reduced_per_node(prepared)
    return prepared


def plan_from_config(config: Config) -> Plan:
    """Return what `prepare_from_config` would do, without data."""
    return _plan(program_from_config(config), config)


def program_from_config(config: Config) -> FloatProgram:
    """Return the config's float model, captured."""
    inputs = input_stamps(require_model(config))
    return capture(build_model(config), example_inputs(inputs), inputs, training=_is_trained(config))


def prepare_program(program: FloatProgram, config: Config) -> PreparedModel:
    """Return a captured model planned for the config's target, not calibrated."""
    origin = Origin(
        config=_stored(config),
        config_digest=config.digest(),
        source_digest=source_digest(program),
        preprocessing=_preprocessing(config),
    )
    return PreparedModel(program, _plan(program, config), origin)


def _check_is_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        msg = f"prepare takes a torch.nn.Module; this is a {type(model).__name__}"
        raise UsageError(msg)


def _settled(config: Config | Mapping[str, Any] | Path | str) -> Config:
    from pathlib import Path

    if isinstance(config, (str, Path)):
        return load_config(Path(config))
    from qtool.config.schema import Config

    return config if isinstance(config, Config) else config_from_mapping(config)


def _is_trained(config: Config) -> bool:
    return config.quantize.mode == "qat"


def _plan(program: FloatProgram, config: Config) -> Plan:
    return plan_program(program, config.quantize, backends=config.target.backends, isa=config.target.isa)


def _stored(config: Config) -> Config:
    """Return the part of a config that a file keeps: what later stages need, and nothing of the machine."""
    sections = config.model_dump(mode="json", include={"version", "target", "quantize"})
    return config_from_mapping(sections, "config.json")


def _preprocessing(config: Config) -> dict[str, Any] | None:
    preprocess = getattr(config.data.calibrate or config.data.train, "preprocess", None)
    return None if preprocess is None else preprocess.model_dump(mode="json")
