"""Observers by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from qtool.errors import UsageError, nearest
from qtool.observers.histogram import HistogramObserver
from qtool.observers.min_max import MinMaxObserver
from qtool.observers.moving_average import MovingAverageObserver
from qtool.observers.mse import MseObserver, MseWeightObserver
from qtool.observers.percentile import PercentileObserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.observers.base import NonFinite, Observer

OBSERVERS: Mapping[str, type[Observer]] = MappingProxyType(
    {
        "minmax": MinMaxObserver,
        "moving_average": MovingAverageObserver,
        "histogram": HistogramObserver,
        "percentile": PercentileObserver,
        "mse": MseObserver,
    }
)
"""Observers of activations: one range for a stream of tensors."""

WEIGHT_OBSERVERS: Mapping[str, type[Observer]] = MappingProxyType({"minmax": MinMaxObserver, "mse": MseWeightObserver})
"""Observers of weights: one range per tensor or per channel, found on the values themselves."""

DEFAULT_ACTIVATION_OBSERVERS: Mapping[str, str] = MappingProxyType({"ptq": "minmax", "qat": "moving_average"})
"""What `auto` means for activations, by mode. In training the values change with the weights, so old ones must fade."""

DEFAULT_WEIGHT_OBSERVER = "minmax"
"""What `auto` means for weights."""


def make_observer(
    name: str, *, axis: int | None = None, is_weight: bool = False, non_finite: NonFinite = "error"
) -> Observer:
    """Return a new observer.

    Args:
        name: a key of OBSERVERS, or of WEIGHT_OBSERVERS for a weight or with an axis.
        axis: the channel axis, counted from the front; None for one range.
        is_weight: the values of one weight are observed, not a stream of activations.
        non_finite: what to do with NaN and infinity.

    Raises:
        UsageError: there is no observer of that name for the purpose.

    Example:
        >>> make_observer("minmax", axis=0)
        MinMaxObserver(axis 0, 0 batches)
    """
    for_weights = is_weight or axis is not None
    table = WEIGHT_OBSERVERS if for_weights else OBSERVERS
    if name not in table:
        purpose = "weights" if for_weights else "activations"
        msg = f"{name!r} is not an observer of {purpose}: there are {', '.join(table)}{nearest(name, table)}"
        raise UsageError(msg)
    if for_weights:
        return table[name](axis, non_finite=non_finite)
    return table[name](non_finite=non_finite)
