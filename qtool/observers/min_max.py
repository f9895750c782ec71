"""The range of everything that was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from qtool.observers.base import Observer

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor

    from qtool.types import Spec


class MinMaxObserver(Observer):
    """Covers every value seen, so nothing of it is clamped. For activations and for weights.

    Example:
        >>> observer = MinMaxObserver()
        >>> observer.update(torch.tensor([-1.0, 2.0]))
        >>> observer.update(torch.tensor([0.5, 4.1]))
        >>> observer.qparams(Spec(dtype=Dtype.UINT8, qmin=0, qmax=255))
        QParams(scale=tensor(0.0200), zero_point=tensor(50, dtype=torch.int32))
    """

    needs_values: ClassVar[bool] = False

    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the exact minimum and maximum."""
        return self.low, self.high

    def _observe(self, values: Tensor, low: Tensor, high: Tensor) -> None:
        pass  # low and high, which every observer keeps, are all there is

    def _absorb(self, other: Self) -> None:
        pass
