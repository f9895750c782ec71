"""The optimizer of a config, and its state as named arrays, for checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import torch
from torch import Tensor

from qtool.config.train import AdamWConfig, SgdConfig
from qtool.errors import FileFormatError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import nn
    from torch.optim import Optimizer as TorchOptimizer

    from qtool.config.train import Optimizer


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name, in the model's order.

    Raises:
        ModelError: there is none.
    """
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not found:
        msg = "the model has no parameter to train: all of them are constants, or none asks for a gradient"
        raise ModelError(msg)
    return found


def make_optimizer(model: nn.Module, settings: Optimizer) -> TorchOptimizer:
    """Return torch's optimizer for all trained parameters of a model.

    Raises:
        ModelError: there is nothing to train.
    """
    parameters = list(trained_parameters(model).values())
    match settings:
        case SgdConfig():
            return torch.optim.SGD(
                parameters,
                lr=settings.lr,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
                nesterov=settings.nesterov,
            )
        case AdamWConfig():
            first, second = settings.betas
            return torch.optim.AdamW(
                parameters, lr=settings.lr, weight_decay=settings.weight_decay, betas=(first, second), eps=settings.eps
            )
        case _:
            assert_never(settings)


def set_learning_rate(optimizer: TorchOptimizer, lr: float) -> None:
    """Let the next steps have this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def state_arrays(optimizer: TorchOptimizer) -> dict[str, np.ndarray]:
    """Return the state by `<number of the parameter>.<key>`, such as `0.momentum_buffer`; empty before the first step.

    Learning rate, momentum and the like are not in it: the config has them.
    """
    states = optimizer.state_dict()["state"]
    return {
        f"{number}.{key}": value.detach().cpu().numpy()
        for number, state in states.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_state_arrays(optimizer: TorchOptimizer, arrays: Mapping[str, np.ndarray]) -> None:
    """Take on what `state_arrays` gave.

    Raises:
        FileFormatError: an array belongs to no parameter, or has another shape than its own.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        number, _, key = name.partition(".")
        if not number.isdecimal() or int(number) >= len(parameters):
            msg = f"the optimizer's array {name!r} belongs to none of the {len(parameters)} parameters"
            raise FileFormatError(msg)
        shape = tuple(parameters[int(number)].shape)
        if array.shape not in (shape, ()):  # (): a count of steps
            msg = f"the optimizer's array {name!r} has shape {array.shape}, and its parameter {shape}"
            raise FileFormatError(msg)
        state.setdefault(int(number), {})[key] = torch.from_numpy(array.copy())
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
