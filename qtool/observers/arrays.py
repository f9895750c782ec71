"""Checks of observer state that comes from a file, before any of it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def check_arrays(kind: str, initial: Mapping[str, Tensor], arrays: Mapping[str, np.ndarray]) -> None:
    """Check that `arrays` can be the state of an observer.

    Args:
        kind: name of the observer's class, for messages.
        initial: its buffers before the first tensor; one without channels yet, `(0,)` or `(0, 0)`, fits any length.
        arrays: the state.

    Raises:
        FileFormatError: a name, dtype, shape, count or range is wrong.
    """
    if set(arrays) != set(initial):
        msg = f"state of {kind} holds {sorted(arrays)}: it must hold {sorted(initial)}"
        raise FileFormatError(msg)
    for name, array in arrays.items():
        expected = initial[name].numpy()
        fits = array.ndim == expected.ndim if expected.size == 0 else array.shape == expected.shape
        if array.dtype != expected.dtype or not fits:
            msg = (
                f"state {name!r} of {kind} is {array.dtype} of shape {array.shape}: "
                f"it must be {expected.dtype} of shape {expected.shape}"
            )
            raise FileFormatError(msg)
    low, high, num_batches = arrays["low"], arrays["high"], int(arrays["num_batches"])
    same_channels = low.shape == high.shape
    # Before the first tensor low is above high.
    ordered = same_channels and (num_batches == 0 or bool(np.all(np.isfinite(low) & np.isfinite(high) & (low <= high))))
    if num_batches < 0 or not ordered:
        msg = f"state of {kind} has {num_batches} batches and a range that is not finite and in order"
        raise FileFormatError(msg)


def fill_counts(counts: np.ndarray, num_bins: int) -> np.ndarray:
    """Return trimmed counts filled up with zeros to int64 `(num_bins,)`.

    Raises:
        FileFormatError: they are not one row of at most `num_bins` counts, or a count is negative.
    """
    known = counts.dtype in (np.uint32, np.int64)
    if not known or counts.ndim != 1 or counts.size > num_bins or counts.min(initial=0) < 0:
        msg = (
            f"histogram is {counts.dtype} of shape {counts.shape}: "
            f"it must be one row of at most {num_bins} counts, uint32 or int64, none negative"
        )
        raise FileFormatError(msg)
    full = np.zeros(num_bins, dtype=np.int64)
    full[: counts.size] = counts
    return full


def check_span(counts: np.ndarray, num_bins: int) -> None:
    """Check that trimmed counts span exactly the bins that the range of the data has.

    Raises:
        FileFormatError: there are more or fewer bins, or an outer one is empty.
    """
    if counts.size != num_bins or (num_bins and 0 in (counts[0], counts[-1])):
        msg = f"histogram spans {counts.size} bins, but its range has {num_bins}, the outer ones not empty"
        raise FileFormatError(msg)
