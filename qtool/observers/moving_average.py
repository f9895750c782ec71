"""The average range of the tensors seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from qtool.observers.base import Observer

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor

    from qtool.observers.base import NonFinite
    from qtool.types import Spec

MIN_SHARE = 0.01
"""Smallest share of one tensor in the average: after 100 tensors it forgets exponentially.
Source: `averaging_constant` of torch.ao's MovingAverageMinMaxObserver."""


class MovingAverageObserver(Observer):
    """Averages the minimum and the maximum of the tensors: one outlier among many batches counts little.

    Tensor number n enters with the share `max(1 / n, 0.01)`: the plain mean of the first 100, an exponential
    average from there. (torch.ao's observer uses 0.01 from the second tensor on, so with ten batches it stays at
    the first.) The result depends on how the data is cut into batches and, past 100, on their order. Observers are
    merged by the union of their averages, since the tensors they saw are different ones.

    Example:
        >>> observer = MovingAverageObserver()
        >>> for peak in (1.0, 3.0):
        ...     observer.update(torch.tensor([-1.0, peak]))
        >>> observer.average_high
        tensor(2., dtype=torch.float64)
    """

    needs_values: ClassVar[bool] = False

    average_low: Tensor
    average_high: Tensor

    def __init__(self, *, non_finite: NonFinite = "error") -> None:
        super().__init__(non_finite=non_finite)

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the averages."""
        return self.average_low, self.average_high

    def _observe(self, values: Tensor, low: Tensor, high: Tensor) -> None:
        share = max(1.0 / (int(self.num_batches) + 1), MIN_SHARE)
        self.average_low += share * (low - self.average_low)
        self.average_high += share * (high - self.average_high)

    def _absorb(self, other: Self) -> None:
        if not int(self.num_batches):
            self.average_low.copy_(other.average_low)
            self.average_high.copy_(other.average_high)
        torch.minimum(self.average_low, other.average_low, out=self.average_low)
        torch.maximum(self.average_high, other.average_high, out=self.average_high)

    def _initial(self) -> dict[str, Tensor]:
        # float64: a mean of a hundred float32 would depend on their order in its last bits.
        zero = torch.zeros((), dtype=torch.float64)
        return super()._initial() | {"average_low": zero, "average_high": zero.clone()}
