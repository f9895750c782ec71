"""Where a model comes from, and the stamp that a file of it bears."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from qtool.stamp.build import build_stamp
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.capture.program import FloatProgram
    from qtool.config.schema import Config
    from qtool.passes.to_reference import Parameters
    from qtool.plan import Plan
    from qtool.stamp.schema import Stamp


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model comes from; travels with it from file to file.

    Attributes:
        config: target and quantize sections of the config it was prepared with.
        config_digest: digest of the whole config.
        source_digest: digest of the float graph and weights.
        preprocessing: how samples become inputs, JSON values only; None if not stated.
    """

    config: Config
    config_digest: str
    source_digest: str
    preprocessing: Mapping[str, Any] | None = None


def make_stamp(plan: Plan, found: Parameters, origin: Origin, inputs: Any, stage: Stage) -> Stamp:  # noqa: ANN401
    """Return the stamp of a model at some stage; weight codes are proved only once they are final."""
    arrays = {name: (q.scale.numpy(), q.zero_point.numpy()) for name, q in found.activations.items()}
    for name, weight in found.weights.items():
        arrays[f"{name}.weight"] = (weight.qparams.scale.numpy(), weight.qparams.zero_point.numpy())
    is_final = stage not in (Stage.PREPARED, Stage.TRAINED)
    final = found.weights if is_final else {}
    codes = {name: weight.layout.channels_first(weight.codes).numpy() for name, weight in final.items()}
    return build_stamp(
        plan,
        arrays,
        codes,
        stage=stage,
        config_digest=origin.config_digest,
        source_digest=origin.source_digest,
        preprocessing=None if origin.preprocessing is None else dict(origin.preprocessing),
        inputs=inputs,
    )


def source_digest(program: FloatProgram) -> str:
    """Return the sha256 of a float program: its graph as text, then every tensor's name, dtype, shape and bytes."""
    total = hashlib.sha256(str(program.graph_module().graph).encode())
    if program.trained is not None:
        total.update(str(program.training_graph_module().graph).encode())
    for name, tensor in sorted(program.exported.state_dict.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
