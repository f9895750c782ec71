"""The optimizer of a config, and its state as named arrays, for checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import torch
from torch import Tensor

from qtool.config.train import AdamWConfig, SgdConfig
from qtool.errors import FileFormatError, ModelError
from qtool.passes.learned_scales import scale_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import nn
    from torch.optim import Optimizer as TorchOptimizer

    from qtool.config.train import Optimizer


_COUNT = "step"
_SGD_KEYS = ("momentum_buffer",)
_ADAMW_KEYS = (_COUNT, "exp_avg", "exp_avg_sq")
# Source: torch/optim/sgd.py and torch/optim/adam.py, `_init_group`; the count is a float32 scalar, `_get_scalar_dtype`.


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name: in the model's order, learned scales last.

    Raises:
        ModelError: there is none.
    """
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not found:
        msg = "the model has no parameter to train: all of them are constants, or none asks for a gradient"
        raise ModelError(msg)
    scales = {id(parameter) for parameter in scale_parameters(model)}
    return dict(sorted(found.items(), key=lambda item: id(item[1]) in scales))


def make_optimizer(model: nn.Module, settings: Optimizer) -> TorchOptimizer:
    """Return torch's optimizer for all trained parameters of a model; learned scales have no weight decay.

    Raises:
        ModelError: there is nothing to train.
    """
    parameters = _groups(model)
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


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return the optimizer's groups of parameters: weight decay would pull a learned scale to where it began."""
    trained, scales = list(trained_parameters(model).values()), list(scale_parameters(model))
    groups: list[dict[str, Any]] = [{"params": trained[: len(trained) - len(scales)]}]
    return [*groups, {"params": scales, "weight_decay": 0.0}] if scales else groups


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
        FileFormatError: an array belongs to no parameter, is none that this kind of optimizer has, or has another
            shape or dtype than its parameter; or a parameter has some of its arrays only.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    keys = _ADAMW_KEYS if isinstance(optimizer, torch.optim.AdamW) else _SGD_KEYS
    state: dict[int, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        number, _, key = name.partition(".")
        if number not in map(str, range(len(parameters))):
            msg = f"the optimizer's array {name!r} belongs to none of the {len(parameters)} parameters"
            raise FileFormatError(msg)
        if key not in keys:
            msg = f"the optimizer's array {name!r} is unknown; it keeps {', '.join(keys)} of each parameter"
            raise FileFormatError(msg)
        value = torch.from_numpy(array.copy())
        _check_fits(name, value, torch.zeros(()) if key == _COUNT else parameters[int(number)])
        state.setdefault(int(number), {})[key] = value
    for parameter, known in state.items():
        if missing := [key for key in keys if key not in known]:
            msg = f"the optimizer's array {f'{parameter}.{missing[0]}'!r} is missing"
            raise FileFormatError(msg)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_fits(name: str, value: Tensor, wanted: Tensor) -> None:
    for what, found, right in (
        ("shape", tuple(value.shape), tuple(wanted.shape)),
        ("dtype", value.dtype, wanted.dtype),
    ):
        if found != right:
            owner = "a count of steps" if name.endswith(f".{_COUNT}") else "its parameter"
            msg = f"the optimizer's array {name!r} has {what} {found}, and {owner} {right}"
            raise FileFormatError(msg)
