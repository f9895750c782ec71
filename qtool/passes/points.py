"""Where activations are observed and fake-quantized, and what all points of a graph have in common."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.errors import NonFiniteError
from qtool.numerics.fixed_dtype import FixedDtypeModule
from qtool.numerics.module import FakeQuantize
from qtool.numerics.recompute import is_recomputing
from qtool.observers.registry import make_observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.numerics.grid import Grid
    from qtool.numerics.qparams import QParams
    from qtool.plan import EdgePlan
    from qtool.types import Spec


class Mode(StrEnum):
    """What a prepared model does when it is called."""

    OBSERVE = "observe"
    FAKE_QUANTIZE = "fake_quantize"
    FLOAT = "float"


class Point(FixedDtypeModule):
    """One quantized tensor of the model: how it is quantized, and whether its scale is known.

    Attributes:
        mode: observe, fake_quantize or float; set by the model.
        is_calibrated: whether its scale is known; kept by state_dict.
        fake_quantize: rounds to the grid.
    """

    def __init__(self, spec: Spec, num_channels: int | None = None, *, has_batch: bool = False) -> None:
        super().__init__()
        self.mode: Mode = Mode.FLOAT
        self.is_calibrated = False
        self.fake_quantize = FakeQuantize(spec, num_channels, has_batch=has_batch)

    @property
    def is_quantizing(self) -> bool:
        """Whether values are rounded to the grid."""
        return self.mode is Mode.FAKE_QUANTIZE and self.is_calibrated

    @property
    def learns_scale(self) -> bool:
        """Whether the scale gets a gradient: then `fake_quantize` rounds, and no fused op."""
        return self.is_quantizing and self.fake_quantize.learns and self.fake_quantize.follows

    @property
    def grid(self) -> Grid | None:
        """What a fused op rounds to now; None where it does not."""
        return self.fake_quantize.grid() if self.is_quantizing and not self.learns_scale else None

    def settle(self, qparams: QParams) -> None:
        """Take over scale and zero point."""
        self.fake_quantize.set_qparams(qparams)
        self.is_calibrated = True

    def get_extra_state(self) -> Tensor:
        """Return whether the scale is known, for state_dict."""
        return torch.tensor(self.is_calibrated)

    def set_extra_state(self, state: Tensor) -> None:
        """Take from a state_dict whether the scale is known."""
        self.is_calibrated = bool(state)


class ActivationPoint(Point):
    """Where one quantized edge of the model is observed and fake-quantized.

    Attributes:
        edge: the edge's name.
        follows: in train mode the range follows what the edge sees; set by the model.
        observer: finds the range.
    """

    def __init__(self, edge: EdgePlan) -> None:
        super().__init__(edge.spec, has_batch=True)
        self.edge = edge.name
        self.follows = True
        self.observer = make_observer(edge.spec.observer)

    @property
    def has_seen_data(self) -> bool:
        """Whether its observer has statistics."""
        return int(self.observer.num_batches) > 0

    @property
    def is_observing(self) -> bool:
        """Whether what passes is to be observed: in a recomputed segment it was observed the first time."""
        follows = self.follows and not self.fake_quantize.learns
        is_learning = self.mode is Mode.FAKE_QUANTIZE and self.training and follows
        return (self.mode is Mode.OBSERVE or is_learning) and not is_recomputing()

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, or `x` on its grid in mode fake_quantize; observe it where that is due."""
        if self.is_observing:
            self._observe(x)
        return self.fake_quantize(x) if self.is_quantizing else x

    def observe_range(self, low: Tensor, high: Tensor, values: Callable[[], Tensor]) -> None:
        """Observe what a fused op saw, if that is due.

        Args:
            low: smallest value before it was rounded, float32 (); NaN for a NaN among them, above `high` for no values.
            high: largest value.
            values: gives the values, for observers that need them, and for the error where they are not finite.
        """
        if not self.is_observing or bool(low > high):
            return
        if self.observer.needs_values or not bool((low > -inf) & (high < inf)):
            self._observe(values())
        else:
            self.observer.update_range(low, high)

    def _observe(self, x: Tensor) -> None:
        try:
            self.observer.update(x)
        except NonFiniteError as error:
            msg = f"at node {self.edge!r}: {error}"
            raise NonFiniteError(msg) from error
