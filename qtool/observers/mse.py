"""The range with the smallest expected squared error of quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.qparams import QParams, qparams_for
from qtool.observers.base import Observer
from qtool.observers.binned import BinnedObserver
from qtool.observers.clipping import search_range
from qtool.observers.expected_error import expected_squared_error

if TYPE_CHECKING:
    from typing import Self

    from qtool.types import Spec


class MseObserver(BinnedObserver):
    """Trades clamping a few large values against finer steps for all others, for activations.

    The error of a candidate range is that of its real scale and zero point, integrated over the histogram with
    values spread evenly within a bin. Both ends are searched.

    Example:
        >>> observer = MseObserver()
        >>> observer.update(torch.linspace(0.0, 1.0, 1_000_000))
        >>> observer.update(torch.tensor([8.0]))
        >>> low, high = observer.clipped_range(uint8)  # a million values are worth more than one
        >>> round(float(high), 1)
        3.5
    """

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the ends of the best range for the codes of `spec`, float64."""
        edges, counts = self.histogram()

        def criterion(low: Tensor, high: Tensor) -> Tensor:
            return expected_squared_error(edges, counts, qparams_for(low[:, 0], high[:, 0], spec), spec).unsqueeze(1)

        low, high = search_range(
            self.low.double().view(1), self.high.double().view(1), criterion, symmetric=spec.symmetric
        )
        return low[0], high[0]


class MseWeightObserver(Observer):
    """Finds the range with the smallest squared error on the values of a weight themselves, per tensor or channel.

    It keeps what it is shown until it is asked, since no histogram of a channel would be smaller than the channel:
    meant for one weight, not for a stream of activations.

    Attributes:
        values: float32 `(C, n)`, or `(1, n)` without axis.
    """

    values: Tensor

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the ends of the best range for the codes of `spec`, float64, `()` or `(C,)`."""

        def criterion(low: Tensor, high: Tensor) -> Tensor:
            # One candidate at a time: all at once would need M copies of the weight.
            return torch.stack([self._error(qparams_for(*ends, spec), spec) for ends in zip(low, high, strict=True)])

        num_channels = self.values.shape[0]
        low, high = search_range(
            self.low.double().view(num_channels),
            self.high.double().view(num_channels),
            criterion,
            symmetric=spec.symmetric,
        )
        return low.view(self.low.shape), high.view(self.low.shape)

    def _error(self, qparams: QParams, spec: Spec) -> Tensor:
        rounded = fake_quantize(self.values, *qparams, spec.qmin, spec.qmax, axis=0)
        return rounded.sub_(self.values).square_().sum(dim=1, dtype=torch.float64)

    def _observe(self, values: Tensor, low: Tensor, high: Tensor) -> None:
        self.values = torch.cat([self.values, values.view(self.values.shape[0], -1).float()], dim=1)

    def _absorb(self, other: Self) -> None:
        self._observe(other.values, other.low, other.high)

    def _initial(self) -> dict[str, Tensor]:
        return super()._initial() | {"values": torch.empty((1 if self.axis is None else 0, 0), dtype=torch.float32)}

    def _size_for(self, shape: torch.Size) -> None:
        super()._size_for(shape)
        self.values = self.values.new_empty((*shape, 0))
