"""The prepared model: what `prepare` returns and `calibrate` and `convert` take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from qtool.capture.program import write_tensors
from qtool.errors import DtypeError, NonFiniteError, UncalibratedError, UsageError, nearest
from qtool.numerics.qparams import QParams
from qtool.numerics.recompute import is_recomputing
from qtool.passes.insert import insert
from qtool.passes.insert_training import insert_training
from qtool.passes.learned_scales import learn_scales, refresh_scales, scale_parameters
from qtool.passes.narrow_ranges import narrow_warnings
from qtool.passes.points import Mode
from qtool.passes.range_ratio import ratio_warnings
from qtool.passes.settle import settle
from qtool.passes.shared_tensors import share_tensors
from qtool.passes.to_reference import Parameters, QuantizedWeight
from qtool.passes.training_layer import TrainingLayer
from qtool.passes.twins import twins
from qtool.runtime.filed import Filed
from qtool.runtime.inputs import check_inputs
from qtool.runtime.origin import make_stamp
from qtool.runtime.shared_ranges import share_statistics
from qtool.types import Memory, Stage

if TYPE_CHECKING:
    from torch import nn
    from torch.fx import GraphModule

    from qtool.capture.program import FloatProgram
    from qtool.passes.batch_norm_point import BatchNormPoint
    from qtool.passes.insert import Prepared
    from qtool.passes.points import ActivationPoint
    from qtool.passes.weight_point import WeightPoint
    from qtool.plan import Plan
    from qtool.runtime.origin import Origin
    from qtool.stamp.schema import Stamp


class PreparedModel(Filed):
    """A model with an observer and a fake-quantize at every quantized edge and weight.

    Called before calibration it computes the float model. `calibrate` shows it data; from then on it computes what
    the int8 model will compute, on the same grids, in float.

    Prepared with `quantize.mode: qat` it can be trained like any module. After `train()` it computes what the model
    does in train mode, with values on the grid and ranges that follow what is seen; after `eval()` what the int8
    model will compute, and nothing changes.

    Attributes:
        program: the float program it was made from.
        plan: what was decided for every node and edge.
        origin: where it comes from.
        mode: what it does when it is called.
        body: its parameters, by the names they have in the model, and all observers and fake-quantizes.
        num_steps: training steps so far.
    """

    def __init__(self, program: FloatProgram, plan: Plan, origin: Origin) -> None:
        super().__init__()
        self.program = program
        self._call = program.call
        self.plan = plan
        self.origin = origin
        self.num_steps = 0
        self._settled_versions: tuple[int, ...] | None = ()  # None: the weights as they are when the next step begins
        self._observers_frozen = self._batch_norms_frozen = False
        self._memory = Memory.COMPRESSED
        prepared = insert(program.graph_module(computed_weights=self.is_trainable), plan, is_trained=self.is_trainable)
        self._prepared = prepared
        for point in prepared.activations.values():
            point.observer.non_finite = origin.config.quantize.activations.non_finite
        self._training = _insert_training(program, plan, prepared) if program.trained is not None else None
        graphs = [prepared.module] if self._training is None else [prepared.module, self._training.module]
        self.body = share_tensors(*graphs)
        if not self.is_trainable:
            self.body.requires_grad_(False)
        self.set_mode(Mode.FAKE_QUANTIZE if self.is_trainable else Mode.FLOAT)
        self.eval()

    @property
    def is_trainable(self) -> bool:
        """Whether it was prepared for training."""
        return self.program.trained is not None

    @property
    def activations(self) -> dict[str, ActivationPoint]:
        """The point of every quantized edge, by edge name."""
        return self._prepared.activations

    @property
    def weights(self) -> dict[str, WeightPoint]:
        """The point of every quantized weight, by node name."""
        return self._prepared.weights

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - whatever the model takes and returns
        """Return what the model returns; in train mode of a trainable model, what it returns there."""
        if not self.training:
            self._check_is_float32()
        check_inputs(inputs, self._call, self.program.inputs, floating=self._dtype())
        refresh_scales(self._prepared, self.plan)
        if self.training and self._training is not None:
            return self._training_pass(self._training, inputs)
        with torch.autocast(_device_type(inputs), enabled=False):  # the int8 model computes no less exactly
            return self._prepared.module(*inputs)

    def _dtype(self) -> str:
        """Return the dtype that the model was cast to."""
        learned = {id(scale) for scale in scale_parameters(self)}
        others = (p.dtype for p in self.parameters() if p.is_floating_point() and id(p) not in learned)
        return str(next(others, torch.float32)).removeprefix("torch.")

    def _check_is_float32(self) -> None:
        """Refuse to compute what the int8 model will from weights of another dtype.

        Raises:
            DtypeError: the model was cast.
        """
        if (dtype := self._dtype()) != "float32":
            msg = f"the model was cast to {dtype}, and an int8 model is made from float32 weights: call .float() first"
            raise DtypeError(msg)

    def _training_pass(self, training: _Training, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
        self._check_transforms()
        try:
            self._begin_step(training)
            return training.module(*inputs)
        except NonFiniteError as error:
            msg = f"training pass {self.num_steps}: {error}"
            raise NonFiniteError(msg) from error

    def _check_transforms(self) -> None:
        """Refuse what torch.func could not do: it forbids changes of buffers.

        Raises:
            UsageError: ranges or running statistics would follow.
        """
        is_transformed = torch._C._functorch.peek_interpreter_stack() is not None
        if is_transformed and not (self._observers_frozen and self._batch_norms_frozen):
            msg = (
                "torch.func forbids changes of buffers, and in training ranges and running statistics follow: "
                "call freeze_observers() and freeze_batch_norms() before"
            )
            raise UsageError(msg)

    def _begin_step(self, training: _Training) -> None:
        """Set the grids that this step computes on: from what was seen up to now, and from the weights as they are.

        A step is all there is between two changes of the weights: several forward passes may share one backward, which
        may compute each of them again, and must find the grid that it was computed on.
        """
        if is_recomputing():
            return
        self.num_steps += 1
        if self._is_settled and torch.is_grad_enabled():
            return
        self._settled_versions = self._versions
        if not self._batch_norms_frozen:
            self._remember_variances()
        if self.mode is Mode.FAKE_QUANTIZE and not self._observers_frozen and not self.learns_scales:
            settle(self._prepared, self.plan, observed=training.observed)

    def _remember_variances(self) -> None:
        """Let weights that are folded in training know the running variance that they fold in."""
        for name, point in self._prepared.distinct_weights().items():
            if point.folds_in_training:
                point.begin_step(self._prepared.sources[name].tensors(self._prepared.module)[2])

    @property
    def _versions(self) -> tuple[int, ...]:
        return tuple(parameter._version for parameter in self.parameters())

    @property
    def _is_settled(self) -> bool:
        """Whether the grids are those of a step with the weights as they are."""
        if self._settled_versions is None:
            self._settled_versions = self._versions
        return self._settled_versions == self._versions

    def set_mode(self, mode: Mode) -> None:
        """Let every point observe, fake-quantize, or pass its input on."""
        points: list[ActivationPoint | WeightPoint] = [*self.activations.values(), *self.weights.values()]
        for point in points:
            point.mode = mode
        self.mode = mode

    def set_memory(self, memory: Memory | str) -> None:
        """Choose what training keeps of each layer for backward; what is computed stays the same, bit for bit.

        Args:
            memory: `standard`, `compressed` (the default), `mixed` or `recompute`: docs/training.md, "memory".

        Raises:
            UsageError: it is none of these.
        """
        if memory not in list(Memory):
            meant = nearest(str(memory), map(str, Memory))
            msg = f"memory={str(memory)!r} is not a mode: there are {', '.join(Memory)}{meant}"
            raise UsageError(msg)
        self._memory = Memory(memory)
        for layer in self._training.layers if self._training is not None else ():
            layer.memory = self._memory

    @property
    def memory(self) -> Memory:
        """What training keeps of each layer for backward."""
        return self._memory

    def freeze_observers(self, frozen: bool = True) -> None:
        """Keep all scales and zero points as they are in further training steps, those of weights too.

        Raises:
            UncalibratedError: some are not known yet, so there is nothing to keep.
        """
        missing = self.uncalibrated()
        if frozen and missing:
            msg = (
                f"the ranges of {len(missing)} of {len(self.activations)} edges are not known yet, first "
                f"{missing[0]!r}, so they cannot be frozen: calibrate first, or train for two steps"
            )
            raise UncalibratedError(msg, nodes=missing)
        self._follow(not frozen)

    def _follow(self, follows: bool) -> None:
        self._observers_frozen = not follows
        for point in self.activations.values():
            point.follows = point.fake_quantize.follows = follows
        for weight in self.weights.values():
            weight.fake_quantize.follows = follows

    @property
    def learns_scales(self) -> bool:
        """Whether scales are parameters."""
        return next(scale_parameters(self), None) is not None

    def scale_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the learned scales, which no weight decay should pull at; none if none learns."""
        return list(scale_parameters(self))

    def learn_scales(self, learned: bool = True) -> None:
        """Let the scales of activations and weights be parameters, beginning with what they are; ranges then stay.

        `freeze_observers` keeps learned scales as they are. The zero points stay, and so does what follows from an op.

        Args:
            learned: False keeps the scales as they are now, and lets ranges follow again.

        Raises:
            UsageError: the model was not prepared for training.
            UncalibratedError: some ranges are not known yet, so there is nothing to begin with.
        """
        if not self.is_trainable:
            msg = "scales are learned in training, and this model has no graph to train: prepare it with mode: qat"
            raise UsageError(msg)
        missing = self.uncalibrated()
        if learned and missing:
            msg = (
                f"the ranges of {len(missing)} of {len(self.activations)} edges are not known yet, first "
                f"{missing[0]!r}, so they cannot be learned: calibrate first, or train for two steps"
            )
            raise UncalibratedError(msg, nodes=missing)
        learn_scales(self._prepared, self.plan, learned)

    def _save_to_state_dict(self, *args: Any) -> None:  # noqa: ANN401 - passed on
        refresh_scales(self._prepared, self.plan)
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state_dict: dict[str, Any], *args: Any) -> None:  # noqa: ANN401 - passed on
        if any(name.endswith(".fake_quantize.shift") for name in state_dict) and not self.learns_scales:
            learn_scales(self._prepared, self.plan, True)  # before the parts are loaded: edges of a group share one
        super()._load_from_state_dict(state_dict, *args)

    def freeze_batch_norms(self, frozen: bool = True) -> None:
        """Let batch norms use their running statistics in further training steps, and keep them as they are."""
        self._batch_norms_frozen = frozen
        for point in self._training.batch_norms if self._training is not None else ():
            point.frozen = frozen
        if frozen:
            self._remember_variances()

    def get_extra_state(self) -> Tensor:
        """Return mode, steps and what is frozen for state_dict: a tensor, so that it holds nothing but tensors."""
        mode, frozen = list(Mode).index(self.mode), (self._observers_frozen, self._batch_norms_frozen)
        return torch.tensor([mode, self.num_steps, *frozen, self._is_settled], dtype=torch.int64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take mode, steps and what is frozen from a state_dict."""
        mode, self.num_steps, observers_frozen, batch_norms_frozen, is_settled = state.tolist()
        self._settled_versions = None if is_settled else ()  # a state_dict brings the weights after this
        self.set_mode(list(Mode)[mode])
        self._follow(not observers_frozen)
        self.freeze_batch_norms(bool(batch_norms_frozen))

    def state_beside_file(self) -> dict[str, Any]:
        """Return what a file does not say of the model: what it does when it is called."""
        return {**super().state_beside_file(), "mode": self.mode.value, "memory": self.memory.value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take on what the bytes do not say."""
        super().__setstate__(state)
        self.set_mode(Mode(state["mode"]))
        self.set_memory(state["memory"])

    def settle(self) -> None:
        """Set scales and zero points from what was observed so far, and fake-quantize from now on."""
        settle(self._prepared, self.plan)
        self.fake_quantize()

    def share_ranges(self, group: Any = None) -> None:  # noqa: ANN401 - a ProcessGroup, which not every torch has
        """Take the union of what the observers of all processes saw, and settle; call it on every rank.

        DistributedDataParallel gives every rank the ranges of the first, whatever the others saw.

        Args:
            group: the processes; None takes all.

        Raises:
            UsageError: torch.distributed is not initialised, or the ranks do not have the same model.
        """
        share_statistics(self.activations, group)
        self.settle()

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
            point.is_calibrated = False
        for weight in self.weights.values():
            weight.is_calibrated = False
        learn_scales(self._prepared, self.plan, False)
        self.num_steps = 0
        self._settled_versions = ()
        self._follow(True)
        self.set_mode(Mode.FAKE_QUANTIZE if self.is_trainable else Mode.FLOAT)

    def uncalibrated(self) -> tuple[str, ...]:
        """Return the names of the edges whose range is not known."""
        return tuple(name for name, point in self.activations.items() if not point.is_calibrated)

    def range_warnings(self) -> tuple[str, ...]:
        """Return what is to be said of ranges that keep next to nothing of what was seen."""
        seen = {
            name: (float(point.observer.low), float(point.observer.high))
            for name, point in self.activations.items()
            if point.has_seen_data
        }
        return *ratio_warnings(self.plan, seen), *narrow_warnings(self.plan, seen)

    def current_program(self) -> FloatProgram:
        """Return the float program with the weights as they are now."""
        write_tensors(self.program, self.body)
        return self.program

    @torch.no_grad()
    def parameters_found(self) -> Parameters:
        """Return all that calibration or training found: scales, zero points, and the codes of the weights.

        Edges without data are missing, and so are weights behind them.

        Raises:
            DtypeError: the model was cast to another dtype than float32.
        """
        self._check_is_float32()
        refresh_scales(self._prepared, self.plan)
        activations = {
            name: QParams(point.fake_quantize.scale.cpu(), point.fake_quantize.zero_point.cpu())
            for name, point in self.activations.items()
            if point.is_calibrated
        }
        distinct = self._prepared.distinct_weights()
        found = {name: self._quantized(name, point) for name, point in distinct.items() if point.is_calibrated}
        owners = {id(self.weights[owner]): owner for owner in found}
        weights = {name: found[owners[id(point)]] for name, point in self.weights.items() if id(point) in owners}
        return Parameters(activations=activations, weights=weights)

    def _quantized(self, owner: str, point: WeightPoint) -> QuantizedWeight:
        deployed = point.deployed(*self._prepared.sources[owner].tensors(self._prepared.module))
        scale, zero_point = deployed.qparams
        return QuantizedWeight(
            owner=owner,
            codes=deployed.codes.cpu(),
            qparams=QParams(scale.cpu(), zero_point.cpu()),
            bias=None if deployed.bias is None else deployed.bias.detach().cpu(),
            layout=point.layout,
        )

    @property
    def stage(self) -> Stage:
        """How far it has come: prepared, or trained once it has done a step."""
        return Stage.TRAINED if self.num_steps else Stage.PREPARED

    @property
    def stamp(self) -> Stamp:
        """The stamp a file of this model bears."""
        return make_stamp(self.plan, self.parameters_found(), self.origin, self.program.inputs, self.stage)


@dataclass(frozen=True)
class _Training:
    """The training graph: what it observes, and its batch norms."""

    module: GraphModule
    observed: frozenset[str]
    batch_norms: tuple[BatchNormPoint, ...]

    @property
    def layers(self) -> tuple[TrainingLayer, ...]:
        """Its layers."""
        return tuple(module for module in self.module.modules() if isinstance(module, TrainingLayer))


def _insert_training(program: FloatProgram, plan: Plan, prepared: Prepared) -> _Training:
    module = program.training_graph_module()
    found = twins(program.graph_module(computed_weights=True).graph, module.graph)
    observed, batch_norms = insert_training(module, plan, found, prepared)
    return _Training(module, frozenset(observed), tuple(batch_norms))


def _device_type(inputs: tuple[Any, ...]) -> str:
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    return leaves[0].device.type
