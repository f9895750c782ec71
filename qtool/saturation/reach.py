"""How far the pair sums of a weight reach, worked out piece by piece: what is kept is a few numbers a channel.

Two things decide it: the two smallest and the two largest weights of a channel, where any two may meet; and the extreme
sums of the two that do meet, where a kernel's order is known. Both can be put together from parts of a weight, so no
more than a block of it is ever looked at.

Two bytes (or words) that stand side by side are added by one multiplication of the word that both make up:

    0xWWVV * 0x0101 = 0x(V+W)(V)    and the largest of these words has the largest sum in its upper half
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from qtool.backends.record import Pairing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

BLOCK_BYTES: Final = 120 << 10
"""Of codes that are looked at together: with all that is worked out of them they stay in a CPU's cache, and each array
stays below the 128 KiB from which malloc asks the kernel for fresh pages every time.
"""

_LITTLE_BLOCK = 4  # input channels that a weight's block holds; source: oneDNN, gOIhw4i16o4i and its kind
_WIDER: Final = {1: np.uint16, 2: np.uint32}
ORDERED: Final = (Pairing.IN_ORDER, Pairing.CHANNELS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reach:
    """How far the pair sums of some output channels reach, over some of their weights.

    Attributes:
        extremes: the smallest, second smallest, second largest and largest weight of each channel, (channels, 4), int8;
            where there is no second, 0.
        sums: for each pairing with an order the largest and smallest pair sum of each channel, (2, channels), int64. It
            is missing where any two may meet.
    """

    extremes: NDArray[np.int8]
    sums: Mapping[Pairing, NDArray[np.int64]]

    def over_more_weights(self, other: Reach) -> Reach:
        """Return the reach of the same channels over the weights of both."""
        both = extreme_weights(np.concatenate([self._signed_extremes(), other._signed_extremes()], axis=1))
        both[:, 0] = np.minimum(self.extremes[:, 0], other.extremes[:, 0])
        both[:, 3] = np.maximum(self.extremes[:, 3], other.extremes[:, 3])
        sums = {}
        for pairing, (largest, smallest) in self.sums.items():
            its_largest, its_smallest = other.sums[pairing]
            sums[pairing] = np.stack([np.maximum(largest, its_largest), np.minimum(smallest, its_smallest)])
        return Reach(extremes=both, sums=sums)

    def sums_of(self, pairing: Pairing, a_lo: int, a_hi: int) -> NDArray[np.int64]:
        """Return the largest and smallest pair sum of each channel, (2, channels).

        Args:
            pairing: which two meet.
            a_lo: smallest activation code.
            a_hi: largest activation code; both as `reach_of` was given them.
        """
        found = self.sums.get(pairing)
        if found is not None:
            return found
        weights = self._signed_extremes().astype(np.int64)
        at_ends = weights * min(a_lo, 0), weights * max(a_hi, 0)
        largest = np.sort(np.maximum(*at_ends), axis=1)[:, -2:].sum(axis=1)
        smallest = np.sort(np.minimum(*at_ends), axis=1)[:, :2].sum(axis=1)
        return np.stack([largest, smallest])

    def _signed_extremes(self) -> NDArray[np.int8]:
        """Return the extremes, 0 where the smallest are above it or the largest below.

        Kernels fill up with 0, so a sum may have one product only; and so no weight but 0 is there twice.
        """
        return np.concatenate([self.extremes[:, :2].clip(max=0), self.extremes[:, 2:].clip(min=0)], axis=1)


def reach_of(weight_codes: NDArray[np.int8], a_lo: int, a_hi: int, pairings: Sequence[Pairing] = ORDERED) -> Reach:
    """Return how far the pair sums of a weight reach.

    Args:
        weight_codes: int8 codes, output channels first: (out, in / groups, *kernel) or (out, in).
        a_lo: smallest activation code that can occur.
        a_hi: largest activation code that can occur.
        pairings: those to look at; `any` is always among them.
    """
    parts = [_reach_of_block(block, a_lo, a_hi, pairings) for block in _blocks(weight_codes)]
    return beside(parts)


def beside(parts: Sequence[Reach]) -> Reach:
    """Return the reach of all channels, from those of some channels each; at least one."""
    return Reach(
        extremes=np.concatenate([part.extremes for part in parts]),
        sums={pairing: np.concatenate([part.sums[pairing] for part in parts], axis=1) for pairing in parts[0].sums},
    )


def of_linear(reach: Reach, num_inputs: int) -> Reach:
    """Return the reach of a linear layer, which has one position, from that in its order: channels meet in the same."""
    if num_inputs < _LITTLE_BLOCK or Pairing.IN_ORDER not in reach.sums:
        return reach
    return Reach(extremes=reach.extremes, sums={pairing: reach.sums[Pairing.IN_ORDER] for pairing in ORDERED})


def extreme_weights(rows: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the smallest, second smallest, second largest and largest of each row, (rows, 4); no second is a 0.

    Example:
        >>> extreme_weights(np.int8([[5, -3, 4, 1], [2, 2, 2, 2]])).tolist()
        [[-3, 1, 4, 5], [2, 2, 2, 2]]
    """
    found = np.zeros((len(rows), 4), dtype=np.int8)
    if not rows.shape[1]:
        return found
    rows, each = rows.copy(), np.arange(len(rows))
    for first, second, arg, reduce, fill in (
        (3, 2, np.argmax, np.max, -128),
        (0, 1, np.argmin, np.min, 127),
    ):
        places = arg(rows, axis=1)
        found[:, first] = rows[each, places]
        if rows.shape[1] > 1:
            rows[each, places] = fill
            found[:, second] = reduce(rows, axis=1)
            rows[each, places] = found[:, first]
    return found


def pairs_of(values: NDArray[Any], pairing: Pairing) -> NDArray[Any]:
    """Return the values that meet, (out, number of pairs, 2); what is left over meets 0.

    Args:
        values: anything in the layout of a weight, output channels first.
        pairing: `in_order` or `channels`.

    Example:
        >>> rows = np.arange(1, 7).reshape(1, 3, 2)  # three input channels, two kernel positions
        >>> pairs_of(rows, Pairing.IN_ORDER).tolist()
        [[[1, 3], [5, 2], [4, 6]]]
        >>> pairs_of(rows, Pairing.CHANNELS).tolist()
        [[[1, 3], [5, 0], [2, 4], [6, 0]]]
    """
    by_position = values.reshape(*values.shape[:2], -1).swapaxes(1, 2)  # (out, positions, in / groups)
    if pairing is Pairing.IN_ORDER:
        by_position = by_position.reshape(len(values), 1, -1)
    if by_position.shape[2] % 2:
        by_position = np.pad(by_position, ((0, 0), (0, 0), (0, 1)))
    return by_position.reshape(len(values), -1, 2)


def _blocks(weight_codes: NDArray[np.int8]) -> Iterator[NDArray[np.int8]]:
    """Yield the weight some output channels at a time."""
    channel_bytes = max(1, weight_codes[0].size)
    step = max(1, BLOCK_BYTES // channel_bytes)
    for start in range(0, len(weight_codes), step):
        yield weight_codes[start : start + step]


def _reach_of_block(codes: NDArray[np.int8], a_lo: int, a_hi: int, pairings: Sequence[Pairing]) -> Reach:
    sums: dict[Pairing, NDArray[np.int64]] = {}
    for pairing in pairings:
        if _is_any(codes, pairing):
            continue
        # With an even number of channels both orders make the same pairs: channels are innermost in both.
        is_known = bool(sums) and codes.shape[1] % 2 == 0
        sums[pairing] = next(iter(sums.values())) if is_known else _ordered_sums(pairs_of(codes, pairing), a_lo, a_hi)
    return Reach(extremes=extreme_weights(codes.reshape(len(codes), -1)), sums=sums)


def _is_any(codes: NDArray[np.int8], pairing: Pairing) -> bool:
    """Whether any two may meet: where the pairing says so, and where there is no more than a row of weights."""
    if pairing is Pairing.ANY or codes.ndim < 2 or not codes.size:
        return True
    return pairing is Pairing.CHANNELS and codes.shape[1] < _LITTLE_BLOCK


def _ordered_sums(pairs: NDArray[np.int8], a_lo: int, a_hi: int) -> NDArray[np.int64]:
    """Return the largest and smallest sum of the pairs of each channel, (2, channels)."""
    low, high = min(a_lo, 0), max(a_hi, 0)
    unit = math.gcd(low, high) or 1  # 0..255 becomes 0..1, whose products are bytes
    low, high = low // unit, high // unit
    largest_weight = max(int(pairs.max()), -int(pairs.min()), 1)
    unsigned = np.min_scalar_type(2 * largest_weight * max(high, -low))  # holds every sum of two products
    signed = np.dtype(f"i{unsigned.itemsize}")
    codes = np.ascontiguousarray(pairs.reshape(len(pairs), -1), dtype=signed)
    at_low, at_high = _times(codes, low), _times(codes, high)
    largest = np.maximum(at_low, at_high)
    smallest = np.negative(np.minimum(at_low, at_high))
    return np.stack([_largest_sums(largest.view(unsigned)), -_largest_sums(smallest.view(unsigned))]) * unit


def _largest_sums(products: NDArray[Any]) -> NDArray[np.int64]:
    """Return the largest sum of two neighbours in each row, (rows, 2 n); each sum fits the dtype."""
    wider = _WIDER.get(products.itemsize)
    if wider is None:
        sums: NDArray[np.int64] = products.reshape(len(products), -1, 2).astype(np.int64).sum(axis=2)
        largest: NDArray[np.int64] = sums.max(axis=1)
        return largest
    num_bits = 8 * products.itemsize
    words = products.view(wider)
    words *= wider(1 + (1 << num_bits))
    largest = words.max(axis=1) >> num_bits
    return largest.astype(np.int64)


def _times(codes: NDArray[Any], factor: int) -> NDArray[Any]:
    if factor == 0:
        return np.zeros_like(codes)  # an array: against a single number, numpy compares bytes one by one
    return codes if factor == 1 else codes * factor
