"""Measures the weight of a node, block by block: which codes it has, which channels are dead, what its sums can reach.

A weight lies in the file as (out, in / groups, *kernel), as (in, out), or, of a transposed convolution, as
(in, out / groups, *kernel). The first two are read a block at a time; the last, which is small, whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from qtool.inspection.nodes import Histogram
from qtool.inspection.numbers import read_whole, rows_of
from qtool.saturation.pairs import bounds_from
from qtool.saturation.reach import ORDERED, beside, of_linear, reach_of
from qtool.types import TRANSPOSED_CONVOLUTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from qtool.inspection.meter import Meter
    from qtool.readers.facts import Node, Tensor
    from qtool.saturation.reach import Reach
    from qtool.saturation.verdict import Bound

NUM_BINS: Final = 64
_SAMPLE: Final = 1 << 18
_SIGN: Final = 0x80
_CACHE_LINE: Final = 64
_CODES: Final = ("int8", "uint8")


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What was found in a weight; None and 0 where it could not be read.

    Attributes:
        seen_min: smallest code.
        seen_max: largest code.
        num_dead_channels: output channels whose codes are all the zero point.
        num_not_finite: floats that are infinite or NaN.
        values: histogram of its codes or floats, of at most 2^18 of them, evenly taken.
        bounds: what its pair sums can reach; empty where it was not asked for, or the codes are not int8.
    """

    seen_min: int | None = None
    seen_max: int | None = None
    num_dead_channels: int = 0
    num_not_finite: int = 0
    values: Histogram | None = None
    bounds: tuple[Bound, ...] = ()


def weigh(meter: Meter, node: Node, tensor: Tensor, ends: tuple[int, int] | None, zero_point: float) -> Weighed:
    """Return what is found in a node's weight.

    Args:
        meter: the open file.
        node: whose weight it is.
        tensor: the weight.
        ends: the smallest and largest code of the node's input; None asks for no bounds.
        zero_point: the code that stands for 0 in all channels.

    Raises:
        FileFormatError: its bytes are not there.
    """
    if tensor.dtype not in _CODES:
        return _weigh_floats(meter, tensor)
    sample = _Sample(tensor.num_elements if meter.histograms else 0)
    parts: list[Reach] = []
    is_in_first = node.is_weight_in_out and len(tensor.shape) == 2
    ends = ends if tensor.dtype == "int8" else None
    pairings = ORDERED[:1] if is_in_first else ORDERED
    for codes in _channels_first(meter, node, tensor, sample):
        signed = codes if tensor.dtype == "int8" else (codes ^ np.uint8(_SIGN)).view(np.int8)
        found = reach_of(signed, *(ends or (0, 0)), pairings if ends else ())
        parts = [parts[0].over_more_weights(found)] if is_in_first and parts else [*parts, found]
    if not parts:
        return Weighed()
    reach = of_linear(parts[0], tensor.shape[0]) if is_in_first else beside(parts)
    shift = 0 if tensor.dtype == "int8" else _SIGN
    smallest, largest = (reach.extremes[:, column].astype(np.int64) + shift for column in (0, 3))
    return Weighed(
        seen_min=int(smallest.min()),
        seen_max=int(largest.max()),
        num_dead_channels=int(((smallest == zero_point) & (largest == zero_point)).sum()),
        values=sample.of_codes(shift),
        bounds=bounds_from(reach, *ends) if ends else (),
    )


def _channels_first(meter: Meter, node: Node, tensor: Tensor, sample: _Sample) -> Iterator[NDArray[Any]]:
    """Yield a weight in parts, output channels first: some channels each, or of an (in, out) some inputs each."""
    shape = tensor.shape
    if node.op in TRANSPOSED_CONVOLUTIONS or tensor.strides is not None:
        whole = read_whole(meter, tensor)
        if whole is not None:
            sample.add(whole.reshape(-1))
            yield _outputs_first(whole, node)
    elif node.is_weight_in_out and len(shape) == 2:
        for flat in rows_of(meter, tensor, 2 * shape[1]):  # an even number of inputs: what meets stays together
            sample.add(flat)
            yield _transposed(flat.reshape(-1, shape[1]))
    else:
        for flat in rows_of(meter, tensor, math.prod(shape[1:])):
            sample.add(flat)
            yield flat.reshape(-1, *shape[1:])


def _transposed(codes: NDArray[Any]) -> NDArray[Any]:
    """Return a block of bytes transposed, by way of rows that do not all begin in one set of a CPU's cache.

    With 4096 outputs, a power of two as most, that is five times as fast.
    """
    num_lines = -(-codes.shape[1] // _CACHE_LINE) | 1
    spread = np.empty((len(codes), num_lines * _CACHE_LINE), codes.dtype)[:, : codes.shape[1]]
    spread[:] = codes
    return np.ascontiguousarray(spread.T)


def _outputs_first(weight: NDArray[Any], node: Node) -> NDArray[Any]:
    """Return a weight that was read whole as (out, in / groups, *kernel)."""
    if node.op in TRANSPOSED_CONVOLUTIONS and weight.ndim > 2:
        groups = node.groups if node.groups and weight.shape[0] % node.groups == 0 else 1
        by_group = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        weight = by_group.reshape(-1, *by_group.shape[2:])
    elif node.is_weight_in_out and weight.ndim == 2:
        weight = weight.T
    return np.ascontiguousarray(weight)


def _weigh_floats(meter: Meter, tensor: Tensor) -> Weighed:
    sample, num_not_finite = _Sample(tensor.num_elements if meter.histograms else 0), 0
    whole = None if tensor.strides is None else read_whole(meter, tensor)
    for flat in rows_of(meter, tensor, 1) if whole is None else [whole.reshape(-1)]:
        if flat.dtype.kind != "f":
            return Weighed()
        num_not_finite += int(flat.size - np.isfinite(flat).sum())
        sample.add(flat)
    return Weighed(num_not_finite=num_not_finite, values=sample.of_floats())


class _Sample:
    """Some of a tensor's values, evenly taken while it is read; none where no elements are said to be wanted."""

    def __init__(self, num_elements: int) -> None:
        self._is_wanted = num_elements > 0
        self._step = -(-num_elements // _SAMPLE) | 1  # odd, so that it is no multiple of most rows
        self._parts: list[NDArray[Any]] = []

    def add(self, flat: NDArray[Any]) -> None:
        if self._is_wanted:
            self._parts.append(flat[:: self._step].copy())

    def of_codes(self, shift: int) -> Histogram | None:
        """Return the histogram of int8 codes (`shift` 0) or uint8 codes (128), four of the 256 in each step."""
        if not self._parts:
            return None
        counts = np.bincount(np.concatenate(self._parts).view(np.uint8), minlength=256)
        ordered = counts if shift else np.roll(counts, _SIGN)
        low = 0 if shift else -_SIGN
        return Histogram(low=low, high=low + 256, counts=tuple(ordered.reshape(NUM_BINS, -1).sum(axis=1).tolist()))

    def of_floats(self) -> Histogram | None:
        """Return the histogram of the finite floats; None of none, or of a single value."""
        values = np.concatenate(self._parts).astype(np.float64) if self._parts else np.zeros(0)
        return histogram(values[np.isfinite(values)])


def histogram(values: NDArray[np.float64], *, is_log: bool = False) -> Histogram | None:
    """Return the histogram of finite values; None of less than two different ones.

    Args:
        values: what to count; above 0 with `is_log`.
        is_log: steps are equal in the logarithm.
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if not low < high < math.inf or not math.isfinite(high - low):
        return None
    edges = np.geomspace(low, high, NUM_BINS + 1) if is_log else np.linspace(low, high, NUM_BINS + 1)
    edges[0], edges[-1] = low, high
    if not (np.diff(edges) > 0).all():
        return None  # neighbours in float64
    counts, _ = np.histogram(values, edges)
    return Histogram(low=low, high=high, counts=tuple(counts.tolist()), is_log=is_log)
