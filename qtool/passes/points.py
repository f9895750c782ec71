"""The modules that `insert` puts into a graph: where activations and weights are observed and fake-quantized."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from torch import Tensor, nn

from qtool.errors import NonFiniteError
from qtool.numerics.module import FakeQuantize
from qtool.observers.registry import make_observer

if TYPE_CHECKING:
    from qtool.passes.weight_layout import WeightLayout
    from qtool.plan import EdgePlan
    from qtool.types import Spec


class Mode(StrEnum):
    """What a prepared model does when it is called."""

    OBSERVE = "observe"
    FAKE_QUANTIZE = "fake_quantize"
    FLOAT = "float"


class ActivationPoint(nn.Module):
    """Where one quantized edge of the model is observed and fake-quantized.

    Attributes:
        edge: the edge's name.
        mode: observe (input unchanged, statistics updated), fake_quantize, or float (input unchanged).
    """

    def __init__(self, edge: EdgePlan) -> None:
        super().__init__()
        self.edge = edge.name
        self.mode: Mode = Mode.FLOAT
        self.observer = make_observer(edge.spec.observer)
        self.fake_quantize = FakeQuantize(edge.spec)

    @property
    def is_calibrated(self) -> bool:
        """Whether its observer has seen data."""
        return int(self.observer.num_batches) > 0

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, or `x` on its grid in mode fake_quantize."""
        if self.mode is Mode.OBSERVE:
            try:
                self.observer.update(x)
            except NonFiniteError as error:
                msg = f"{self.edge!r}: {error}"
                raise NonFiniteError(msg) from error
            return x
        if self.mode is Mode.FAKE_QUANTIZE and self.is_calibrated:
            return self.fake_quantize(x)
        return x


class WeightPoint(nn.Module):
    """One weight with its bias, batch norm folded in, and how it is quantized.

    Attributes:
        weight: float32.
        bias: float32 (O,) or None.
        layout: where the weight's output channels lie.
        mode: as in ActivationPoint; a weight is observed when the input scale is known, not by calls.
        is_calibrated: whether its scale is set.
    """

    def __init__(self, spec: Spec, weight: Tensor, bias: Tensor | None, layout: WeightLayout) -> None:
        super().__init__()
        self.layout = layout
        self.mode: Mode = Mode.FLOAT
        self.is_calibrated = False
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        self.fake_quantize = FakeQuantize(spec, None if spec.axis is None else weight.shape[spec.axis])

    def forward(self) -> Tensor:
        """Return the weight, on its grid in mode fake_quantize."""
        if self.mode is Mode.FAKE_QUANTIZE and self.is_calibrated:
            return self.fake_quantize(self.weight)
        return self.weight
