"""The runtime module: a converted model packed for the engines of its nodes, ready to run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from qtool.backends.engines import AUTO, OnMismatch
from qtool.capture.program import Call, plain_module
from qtool.errors import ModelError, QtoolWarning
from qtool.lowering.lower import lower
from qtool.lowering.mac_nodes import mac_nodes
from qtool.lowering.straight_line import straight_line, takes_directly
from qtool.runtime.engine_choice import Placed, place_nodes
from qtool.runtime.fastest import place_fastest
from qtool.runtime.generated_inputs import calibrated_ranges, generated_inputs
from qtool.runtime.inputs import check_inputs, check_no_nan
from qtool.runtime.release import release_weights as _release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.plan import Plan
    from qtool.runtime.converted import ConvertedModel
    from qtool.stamp.schema import Stamp


@dataclass(frozen=True)
class Override:
    """A node that runs as asked although its numbers may be wrong there.

    Attributes:
        node: the node's name.
        engine: where it runs.
        why: what may be wrong.
    """

    node: str
    engine: str
    why: str


class RuntimeModel(nn.Module):
    """A converted model on engines; immutable, and safe to call from several threads.

    Args:
        converted: what `qtool.convert` returned, or a converted file's content.
        engine: see `qtool.load`, as all the others.
        on_mismatch: what becomes of nodes whose engine is missing or wrong.
        release_weights: free the original weights that qnnpack keeps.
        example: the arguments that `auto` times engines on.
        known: engine by node that `auto` once found; checked, and not trusted to be right.

    Attributes:
        placement: for each int8 convolution and linear layer, by its name, the engine that it runs on and why.
        overrides: the nodes that run as asked (`on_mismatch="warn"`) although their numbers may be wrong.
        released_bytes: size of the original weights that were freed.
        plan: what was decided for every node and edge.
        stamp: for which target it was made.
    """

    def __init__(
        self,
        converted: ConvertedModel,
        engine: str | None = None,
        *,
        on_mismatch: str = OnMismatch.ERROR,
        release_weights: bool = True,
        example: tuple[Any, ...] | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.plan: Plan = converted.plan
        self._call = Call.of(converted.exported)
        self.stamp: Stamp = converted.stamp
        reference = plain_module(converted.exported)
        nodes = mac_nodes(reference)
        if engine == AUTO:
            arguments = self._timed_on(example)
            found = place_fastest(
                converted.exported, self.stamp, nodes, arguments, known=known, on_mismatch=on_mismatch
            )
        else:
            found = place_nodes(self.stamp, nodes, engine=engine, on_mismatch=on_mismatch)
        if found.warning:
            warnings.warn(found.warning, QtoolWarning, stacklevel=2)
        self.placement: Mapping[str, Placed] = MappingProxyType({n.label: found.nodes[n.name] for n in nodes})
        self.body = lower(reference, {name: placed.engine for name, placed in found.nodes.items()})
        self.released_bytes = _release(self.body) if release_weights else 0
        self._straight_line = straight_line(self.body)
        self.eval()

    def _timed_on(self, example: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Return what engines are timed on: the arguments given, or some of the stamped shapes in a batch of 1."""
        if example is None:
            return generated_inputs(self._call, self.stamp.inputs, calibrated_ranges(self.stamp), batch=1)
        check_inputs(example, self._call, self.stamp.inputs)
        return example

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that its convolutions and linear layers run on, by the number of nodes."""
        used = [placed.engine for placed in self.placement.values()]
        return tuple(sorted(set(used), key=lambda engine: (-used.count(engine), engine)))

    @property
    def engine(self) -> str:
        """The names of `engines`, joined; empty without an int8 convolution or linear layer."""
        return " + ".join(self.engines)

    @property
    def overrides(self) -> tuple[Override, ...]:
        """The nodes whose numbers may be wrong where they were asked to run."""
        placed = self.placement.items()
        return tuple(Override(name, where.engine, where.wrong) for name, where in placed if where.wrong)

    @torch.no_grad()
    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - whatever the model takes and returns
        """Return what the model returns, in float.

        Raises:
            UsageError: an input is not of the stamped shape and dtype.
            NonFiniteError: an input holds NaN.
        """
        check_inputs(inputs, self._call, self.stamp.inputs)
        check_no_nan(inputs, self.stamp.inputs)
        with torch.autocast("cpu", enabled=False):  # the program says what is float32
            run = self._straight_line if takes_directly(tree_leaves(inputs)) else self.body
            return run(*inputs)

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse: packed weights belong to their engine."""
        error = _refusal("copied")
        raise error

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse: packed weights belong to their engine."""
        error = _refusal("pickled")
        raise error

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse: torch.jit.script asks this of every module first, and takes no model that is called with a list."""
        error = _refusal("scripted")
        raise error

    def save(self, *_: object, **__: object) -> NoReturn:
        """Refuse: torch.jit.save asks this of what it is to save."""
        error = _refusal("saved")
        raise error

    save_to_buffer = save


def _refusal(verb: str) -> ModelError:
    return ModelError(
        f"a runtime model cannot be {verb}: its weights are packed for an engine. Load the converted file once more, "
        f"or keep what qtool.convert returned; torch.jit.trace takes it if it was loaded with release_weights=False"
    )
