"""The prepared model: what `prepare` returns and `calibrate` and `convert` take."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from qtool.numerics.qparams import QParams
from qtool.numerics.quantize import quantize
from qtool.passes import qdq_ops
from qtool.passes.insert import insert
from qtool.passes.points import Mode
from qtool.passes.settle import settle
from qtool.passes.to_reference import Parameters, QuantizedWeight
from qtool.runtime.filed import Filed
from qtool.runtime.inputs import check_inputs
from qtool.stamp.build import build_stamp
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.capture.program import FloatProgram
    from qtool.config.schema import Config
    from qtool.passes.points import ActivationPoint, WeightPoint
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


class PreparedModel(Filed):
    """A model with an observer and a fake-quantize at every quantized edge and weight.

    Called before calibration it computes the float model. `calibrate` shows it data; from then on it computes what
    the int8 model will compute, on the same grids, in float.

    Attributes:
        program: the float program it was made from.
        plan: what was decided for every node and edge.
        origin: where it comes from.
        mode: what it does when it is called.
    """

    def __init__(self, program: FloatProgram, plan: Plan, origin: Origin) -> None:
        super().__init__()
        self.program = program
        self._call = program.call
        self.plan = plan
        self.origin = origin
        prepared = insert(program.graph_module(), plan)
        self.body = prepared.module
        self._prepared = prepared
        self.set_mode(Mode.FLOAT)
        self.eval()

    @property
    def activations(self) -> dict[str, ActivationPoint]:
        """The point of every quantized edge, by edge name."""
        return self._prepared.activations

    @property
    def weights(self) -> dict[str, WeightPoint]:
        """The point of every quantized weight, by node name."""
        return self._prepared.weights

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - whatever the model takes and returns
        """Return what the model returns."""
        check_inputs(inputs, self._call, self.program.inputs)
        return self.body(*inputs)

    def set_mode(self, mode: Mode) -> None:
        """Let every point observe, fake-quantize, or pass its input on."""
        points: list[ActivationPoint | WeightPoint] = [*self.activations.values(), *self.weights.values()]
        for point in points:
            point.mode = mode
        self.mode = mode

    def state_beside_file(self) -> dict[str, Any]:
        """Return what a file does not say of the model: what it does when it is called."""
        return {**super().state_beside_file(), "mode": self.mode.value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take on what the bytes do not say."""
        super().__setstate__(state)
        self.set_mode(Mode(state["mode"]))

    def settle(self) -> None:
        """Set scales and zero points from what was observed so far, and fake-quantize from now on."""
        settle(self._prepared, self.plan)
        self.fake_quantize()

    def fake_quantize(self) -> None:
        """Compute on the grids from now on, wherever they are known."""
        self.set_mode(Mode.FAKE_QUANTIZE)

    def observe(self) -> None:
        """Compute the float model from now on, and update the statistics at every call."""
        self.set_mode(Mode.OBSERVE)

    def reset(self) -> None:
        """Forget all that was observed; the model is as uncalibrated as when it was made."""
        for point in self.activations.values():
            point.observer.reset()
        for weight in self.weights.values():
            weight.is_calibrated = False
        self.set_mode(Mode.FLOAT)

    def uncalibrated(self) -> tuple[str, ...]:
        """Return the names of the edges whose observers saw no data."""
        return tuple(name for name, point in self.activations.items() if not point.is_calibrated)

    @torch.no_grad()
    def parameters_found(self) -> Parameters:
        """Return all that calibration found: scales, zero points, and the codes of the weights.

        Edges without data are missing, and so are weights behind them.
        """
        activations = {
            name: QParams(point.fake_quantize.scale.cpu(), point.fake_quantize.zero_point.cpu())
            for name, point in self.activations.items()
            if point.is_calibrated
        }
        owners: dict[int, str] = {}
        weights: dict[str, QuantizedWeight] = {}
        for name, point in self.weights.items():
            if point.is_calibrated:
                owner = owners.setdefault(id(point), name)
                weights[name] = weights[owner] if owner in weights else _quantized_weight(owner, point)
        return Parameters(activations=activations, weights=weights)

    @property
    def stamp(self) -> Stamp:
        """The stamp a file of this model bears."""
        return make_stamp(self.plan, self.parameters_found(), self.origin, self.program.inputs, Stage.PREPARED)


def _quantized_weight(owner: str, point: WeightPoint) -> QuantizedWeight:
    spec = point.fake_quantize.spec
    scale, zero_point = point.fake_quantize.scale, point.fake_quantize.zero_point
    dtype = qdq_ops.TORCH_DTYPES[spec.dtype]
    codes = quantize(point.weight, scale, zero_point, spec.qmin, spec.qmax, axis=spec.axis, dtype=dtype)
    bias = None if point.bias is None else point.bias.detach().cpu()
    qparams = QParams(scale.cpu(), zero_point.cpu())
    return QuantizedWeight(owner=owner, codes=codes.cpu(), qparams=qparams, bias=bias, layout=point.layout)


def make_stamp(plan: Plan, found: Parameters, origin: Origin, inputs: Any, stage: Stage) -> Stamp:  # noqa: ANN401
    """Return the stamp of a model at some stage; weight codes are proved only once they are final."""
    arrays = {name: (q.scale.numpy(), q.zero_point.numpy()) for name, q in found.activations.items()}
    for name, weight in found.weights.items():
        arrays[f"{name}.weight"] = (weight.qparams.scale.numpy(), weight.qparams.zero_point.numpy())
    codes = {name: w.layout.channels_first(w.codes).numpy() for name, w in found.weights.items()}
    return build_stamp(
        plan,
        arrays,
        {} if stage is Stage.PREPARED else codes,
        stage=stage,
        config_digest=origin.config_digest,
        source_digest=origin.source_digest,
        preprocessing=None if origin.preprocessing is None else dict(origin.preprocessing),
        inputs=inputs,
    )


def source_digest(program: FloatProgram) -> str:
    """Return the sha256 of a float program: its graph as text, then every tensor's name, dtype, shape and bytes."""
    total = hashlib.sha256(str(program.graph_module().graph).encode())
    for name, tensor in sorted(program.exported.state_dict.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
