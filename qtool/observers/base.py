"""What all observers share: they are shown tensors, keep a few numbers in buffers, and answer for any spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from qtool.errors import DtypeError, NonFiniteError, RangeError, UncalibratedError, UsageError
from qtool.numerics.fixed_dtype import FixedDtypeModule
from qtool.numerics.layout import flatten_as_stored
from qtool.numerics.qparams import QParams, qparams_for
from qtool.observers.arrays import check_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtool.types import Spec

NonFinite = Literal["error", "ignore"]


class Observer(FixedDtypeModule, ABC):
    """Finds the range of a stream of tensors; knows no dtype and no integer range of its own.

    Shapes: without axis the tensors may differ in rank and shape; with it only the size of the axis must stay.
    Statistics are float32 or exact integers and keep their dtype when the model is cast.

    Args:
        axis: the channel axis, counted from the front; None for one range.
        non_finite: `error` refuses NaN and infinity; `ignore` leaves them out of the statistics
            (with an axis they count as 0, which every range holds).

    Attributes:
        num_batches: int64, how many tensors were seen. 0 means uncalibrated; the values never say so.
        low: float32, the exact minimum of all that was seen, `()` or `(C,)`.
        high: float32, the exact maximum.
    """

    needs_values: ClassVar[bool] = True
    """Whether the values themselves count, or their minimum and maximum alone."""

    num_batches: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, axis: int | None = None, *, non_finite: NonFinite = "error") -> None:
        super().__init__()
        if non_finite not in get_args(NonFinite):
            msg = f"non_finite={non_finite!r} is not a policy: it must be one of {', '.join(get_args(NonFinite))}"
            raise UsageError(msg)
        self.axis = axis
        self.non_finite = non_finite
        for name, buffer in self._initial().items():
            self.register_buffer(name, buffer)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take one tensor into the statistics.

        An empty tensor changes nothing and does not count.

        Args:
            x: floating, any shape and layout.

        Raises:
            DtypeError: x is not floating.
            NonFiniteError: x holds NaN or infinity and the policy is `error`; nothing was changed.
            RangeError: the number of channels differs from that of the tensors before; nothing was changed.
        """
        if not x.is_floating_point():
            msg = f"cannot observe a tensor of {x.dtype}: only floating tensors have a range"
            raise DtypeError(msg)
        # What is beyond float32 becomes infinity, and is treated as such.
        values = self._rows(x.detach().float() if x.dtype == torch.float64 else x.detach())
        if values.numel() == 0:
            return
        low, high = _extremes(values)
        if not bool(((low > -inf) & (high < inf)).all()):  # NaN fails comparisons; cheaper than `isfinite`
            values = self._without_non_finite(values)
            if values.numel() == 0:
                return
            low, high = _extremes(values)
        self._fit_channels(low.shape)
        self._observe(values, low, high)
        self._widen(low, high, 1)

    @torch.no_grad()
    def update_range(self, low: Tensor, high: Tensor) -> None:
        """Take one tensor into the statistics of which only the range is known; for observers that need no values.

        Args:
            low: its smallest value, finite, float32 `()`.
            high: its largest value.
        """
        assert not self.needs_values
        self._observe(low, low, high)
        self._widen(low, high, 1)

    def qparams(self, spec: Spec) -> QParams:
        """Return scale and zero point of what was seen, for the codes of `spec`.

        Args:
            spec: its qmin, qmax, symmetric and axis are used.

        Returns:
            QParams of shape `()` or `(C,)`.

        Raises:
            UncalibratedError: no tensor was seen.
            RangeError: the axis of spec is not the observer's.
        """
        if not int(self.num_batches):
            msg = "the observer saw no data: run calibration batches through the model first"
            raise UncalibratedError(msg, nodes=())
        if spec.axis != self.axis:
            msg = f"spec has axis {spec.axis}, but the observer kept its statistics for axis {self.axis}"
            raise RangeError(msg)
        return qparams_for(*self.clipped_range(spec), spec)

    @abstractmethod
    def clipped_range(self, spec: Spec) -> tuple[Tensor, Tensor]:
        """Return the ends of the range that the codes of `spec` should cover, each `()` or `(C,)`."""

    @torch.no_grad()
    def merged(self, others: Iterable[Observer]) -> Self:
        """Return a new observer that saw what this one and the others saw.

        An observer that saw nothing adds nothing.

        Raises:
            RangeError: the observers are not of one kind, axis and number of channels.
        """
        result = deepcopy(self)
        result.reset()
        members: list[Observer] = [self, *others]
        for observer in members:
            if not isinstance(observer, type(self)) or observer.axis != self.axis:
                msg = (
                    f"cannot merge {type(observer).__name__} of axis {observer.axis} into {type(self).__name__} "
                    f"of axis {self.axis}: tensors that share a scale need one kind of observer"
                )
                raise RangeError(msg)
            if int(observer.num_batches):
                result._take_over(observer)
        return result

    def reset(self) -> None:
        """Forget all that was seen."""
        for name, buffer in self._initial().items():
            setattr(self, name, buffer.to(self.num_batches.device))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as small arrays, for a file; `load_arrays` of a new observer takes them back."""
        return {name: buffer.cpu().numpy().copy() for name, buffer in self.named_buffers()}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace the state by that of `to_arrays`, bit for bit.

        Raises:
            FileFormatError: the arrays are not the state of an observer of this kind and axis.
        """
        check_arrays(type(self).__name__, self._initial(), arrays)
        for name, array in arrays.items():
            setattr(self, name, torch.from_numpy(np.array(array)).to(self.num_batches.device))

    def forward(self, x: Tensor) -> Tensor:
        """Take `x` into the statistics and return it unchanged, so that an observer can stand in a graph."""
        self.update(x)
        return x

    def extra_repr(self) -> str:
        """Return the axis and what was seen."""
        where = "" if self.axis is None else f"axis {self.axis}, "
        return f"{where}{int(self.num_batches)} batches"

    @abstractmethod
    def _observe(self, values: Tensor, low: Tensor, high: Tensor) -> None:
        """Take finite values, `(n,)` or `(C, n)`, and their extremes; `self.low` and `high` are still the old ones."""

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Take the statistics of a calibrated observer of the same kind; called like `_observe`."""

    def _initial(self) -> dict[str, Tensor]:
        """Return the buffers of an observer that saw nothing."""
        shape = () if self.axis is None else (0,)  # the number of channels is known with the first tensor
        return {
            "num_batches": torch.zeros((), dtype=torch.int64),
            "low": torch.full(shape, torch.inf, dtype=torch.float32),
            "high": torch.full(shape, -torch.inf, dtype=torch.float32),
        }

    def _size_for(self, shape: torch.Size) -> None:
        """Give the buffers their number of channels."""
        self.low = self.low.new_full(shape, torch.inf)
        self.high = self.high.new_full(shape, -torch.inf)

    def _rows(self, x: Tensor) -> Tensor:
        """Return `x` as one row, or as one row per channel."""
        if self.axis is None:
            return flatten_as_stored(x)
        if x.dim() <= self.axis:
            msg = f"axis {self.axis} does not exist in a tensor of shape {tuple(x.shape)}"
            raise RangeError(msg)
        return x.movedim(self.axis, 0).flatten(1) if x.dim() > 1 else x.unsqueeze(1)

    def _without_non_finite(self, values: Tensor) -> Tensor:
        finite = values.isfinite()
        if self.non_finite == "error":
            num_nan = int(values.isnan().sum())
            num_inf = values.numel() - int(finite.sum()) - num_nan
            msg = (
                f"{num_nan} NaN and {num_inf} infinite of {values.numel()} values reached the observer: "
                "look for them in the data, and in the layers before this one; quantize.activations.non_finite: ignore "
                "leaves them out"
            )
            raise NonFiniteError(msg)
        return values[finite] if self.axis is None else values.where(finite, 0.0)

    def _fit_channels(self, shape: torch.Size) -> None:
        if self.low.shape == shape:
            return
        if int(self.num_batches):
            msg = (
                f"axis {self.axis} has {shape.numel()} channels, but had {self.low.numel()} in the tensors before: "
                "every channel has one range, so their number cannot change"
            )
            raise RangeError(msg)
        self._size_for(shape)

    def _widen(self, low: Tensor, high: Tensor, num_batches: Tensor | int) -> None:
        self.low.copy_(torch.minimum(self.low, low))
        self.high.copy_(torch.maximum(self.high, high))
        self.num_batches += num_batches

    def _take_over(self, other: Self) -> None:
        self._fit_channels(other.low.shape)
        self._absorb(other)
        self._widen(other.low, other.high, other.num_batches)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401 - passed on
        # An observer that saw nothing takes the sizes of the checkpoint; any other must have them.
        for name, initial in self._initial().items():
            loaded = state_dict.get(f"{prefix}{name}")
            if initial.numel() == 0 and isinstance(loaded, Tensor) and not int(self.num_batches):
                setattr(self, name, torch.empty_like(loaded, dtype=initial.dtype, device=self.num_batches.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return minimum and maximum of each row as float32; NaN if there is one."""
    low, high = values.aminmax() if values.dim() == 1 else values.aminmax(dim=1)
    return low.float(), high.float()
