"""The runtime module: a converted model packed for an engine, ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from qtool.capture.program import Call, plain_module
from qtool.errors import ModelError
from qtool.lowering.lower import lower
from qtool.lowering.mac_nodes import mac_nodes
from qtool.runtime.engine_choice import choose_engine
from qtool.runtime.inputs import check_inputs, check_no_nan

if TYPE_CHECKING:
    from qtool.plan import Plan
    from qtool.runtime.converted import ConvertedModel
    from qtool.stamp.schema import Stamp


class RuntimeModel(nn.Module):
    """A converted model on an engine; immutable, and safe to call from several threads.

    Attributes:
        engine: the engine its convolutions and linear layers run on.
        plan: what was decided for every node and edge.
        stamp: for which target it was made.
    """

    def __init__(self, converted: ConvertedModel, engine: str | None = None) -> None:
        super().__init__()
        self.engine = choose_engine(converted.stamp, engine)
        self.plan: Plan = converted.plan
        self._call = Call.of(converted.exported)
        self.stamp: Stamp = converted.stamp
        reference = plain_module(converted.exported)
        self.body = lower(reference, {node.name: self.engine for node in mac_nodes(reference)})
        self.eval()

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
            return self.body(*inputs)

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse: packed weights belong to their engine."""
        error = _refusal("copied")
        raise error

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse: packed weights belong to their engine."""
        error = _refusal("pickled")
        raise error


def _refusal(verb: str) -> ModelError:
    return ModelError(
        f"a runtime model cannot be {verb}: its weights are packed for an engine. "
        f"Load the converted file once more, or keep what qtool.convert returned"
    )
