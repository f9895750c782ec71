"""Weights from a file into a freshly built model: every key must fit, and nothing in the file is executed."""

from __future__ import annotations

import pickle  # noqa: TID251 - for the type of the error it raises
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.errors import FileFormatError, ModelError, UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path

PREFIXES = ("module.",)
"""What wrappers put before every key: DataParallel and DistributedDataParallel."""


def load_checkpoint(model: nn.Module, path: Path, *, key: str | None = None) -> None:
    """Load a state dict into the model, in place.

    Args:
        model: the model the weights belong to.
        path: a file written by torch.save that holds a state dict, alone or below `key`.
        key: where in the file the state dict stands.

    Raises:
        UsageError: no such file, or no such key in it.
        FileFormatError: not a checkpoint, or one that would execute code.
        ModelError: keys are missing or unexpected, or a shape differs; all are named.
    """
    state = _state_dict(_read(path), path, key)
    state = {_without_prefix(name, model): tensor for name, tensor in state.items()}
    _check_float(state, path)
    _check_fit(model, state, path)
    model.load_state_dict(state)


def _read(path: Path) -> Any:  # noqa: ANN401
    if not path.is_file():
        msg = f"checkpoint {str(path)!r} is not there; give its path in model.checkpoint, relative to the config file"
        raise UsageError(msg)
    _check_format(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251 - executes nothing
    except pickle.UnpicklingError as error:
        msg = (
            f"checkpoint {str(path)!r} holds more than tensors, so loading it would execute code. "
            f"Save model.state_dict() instead of the model"
        )
        raise FileFormatError(msg) from error
    except Exception as error:  # whatever a damaged pickle makes torch stumble over
        first = str(error).partition("\n")[0]
        msg = f"checkpoint {str(path)!r} cannot be read: {first}. It must be a state dict written by torch.save"
        raise FileFormatError(msg) from error


def _check_format(path: Path) -> None:
    """Refuse by its first bytes what torch would misread, or answer with advice that is not for our users."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PK\x03\x04":
        try:
            with zipfile.ZipFile(path) as archive:
                is_script = any(name.endswith("/constants.pkl") for name in archive.namelist())
        except zipfile.BadZipFile as error:
            msg = f"checkpoint {str(path)!r} is damaged ({error}); get it again"
            raise FileFormatError(msg) from error
        if is_script:
            msg = f"checkpoint {str(path)!r} is a TorchScript model; save the state_dict() of the model it came from"
            raise FileFormatError(msg)
    elif start[:1] != b"\x80":
        msg = f"checkpoint {str(path)!r} is no file of torch.save; it must be a state dict written by torch.save"
        raise FileFormatError(msg)


def _state_dict(found: Any, path: Path, key: str | None) -> Mapping[str, Any]:  # noqa: ANN401
    if key is not None:
        if not isinstance(found, Mapping) or key not in found:
            keys = [str(name) for name in found] if isinstance(found, Mapping) else []
            msg = f"checkpoint {str(path)!r} has no key {key!r}{nearest(key, keys)}; it has {', '.join(keys[:10])}"
            raise UsageError(msg)
        found = found[key]
    if isinstance(found, Mapping) and found and all(isinstance(value, Tensor) for value in found.values()):
        return found
    inside = [str(n) for n, value in found.items() if isinstance(value, Mapping)] if isinstance(found, Mapping) else []
    hint = f"set model.checkpoint_key to one of {', '.join(inside[:5])}" if inside else "save model.state_dict()"
    msg = f"checkpoint {str(path)!r} is no state dict: {hint}"
    raise FileFormatError(msg)


def _without_prefix(name: str, model: nn.Module) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix) and not hasattr(model, prefix.rstrip(".")):
            return name.removeprefix(prefix)
    return name


def _check_float(state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a quantized checkpoint: its weights are codes, and would load as nonsense or not at all."""
    num_quantized = sum(tensor.is_quantized for tensor in state.values())
    if num_quantized or any(name.endswith("_packed_params._packed_params") for name in state):
        msg = (
            f"checkpoint {str(path)!r} is quantized ({num_quantized} quantized tensors), the model is float; "
            f"give the float weights the model was trained with"
        )
        raise ModelError(msg)


def _common_prefix(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Return what stands before every key of the checkpoint and makes them all the model's own when taken away."""
    first = next(iter(own), "")
    candidates = {name.removesuffix(first) for name in state if name.endswith(f".{first}")} if first else set()
    fits = (p for p in candidates if {name.removeprefix(p) for name in state if name.startswith(p)} >= own.keys())
    return next(fits, "")


def _check_fit(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    own = model.state_dict()
    prefix = _common_prefix(own, state)
    if prefix:
        msg = (
            f"the keys of checkpoint {str(path)!r} begin with {prefix!r} and the model's do not; "
            f"save the state_dict() of the part that model.factory builds"
        )
        raise ModelError(msg)
    problems = [f"{name}: missing in the checkpoint" for name in own if name not in state]
    problems += [f"{name}: not in the model{nearest(name, own)}" for name in state if name not in own]
    problems += [
        f"{name}: shape {tuple(state[name].shape)} in the checkpoint, {tuple(tensor.shape)} in the model"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if problems:
        shown = "\n  ".join(problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        msg = f"checkpoint {str(path)!r} does not fit the model; check model.factory and kwargs:\n  {shown}{more}"
        raise ModelError(msg)
