"""What int16 pair sums really do to a layer on given inputs: how many are clipped, and by how much outputs are off.

The arithmetic is the kernel's: products are added two by two in the order of its pairing, each sum is clipped to
-32768..32767, and the rest is added in int32. Only pairs that could leave int16 are looked at.

Shapes: N samples, I inputs, O outputs, G groups; a linear layer's rows are (N, I).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from qtool.backends.record import Pairing
from qtool.errors import RangeError
from qtool.saturation.reach import pairs_of
from qtool.saturation.verdict import INT16_MAX, INT16_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Window:
    """How a layer moves over its input: one number per spatial dimension; none for a linear layer.

    Attributes:
        stride: step of the window; of a transposed convolution, of the output.
        padding: rows of zero points around the input; of a transposed convolution, what is cut from the output.
        dilation: distance between two taps.
        groups: number of groups.
        output_padding: of a transposed convolution; None for the others.
    """

    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    output_padding: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Clipped:
    """What a layer's pair sums did.

    Attributes:
        num_sums: pair sums that were made.
        num_clipped: those that left int16.
        errors: how far each output's sum is off, (N, O, *spatial), int64, in units of one product.
    """

    num_sums: int
    num_clipped: int
    errors: NDArray[np.int64]


def simulate(
    codes: NDArray[Any], weight: NDArray[np.int8], window: Window, pairing: Pairing, *, zero_point: int = 0
) -> Clipped:
    """Return what becomes of a layer's pair sums on given inputs.

    Args:
        codes: activation codes, (N, I, *spatial), or (N, I).
        weight: int8 codes, output channels first: (O, I / G, *kernel), or (O, I).
        window: how the layer moves over its input.
        pairing: which products meet: `in_order` or `channels`.
        zero_point: the code of 0.0, which padding has.

    Raises:
        RangeError: the pairing is `any`, which is no order that could be computed.

    Example:
        >>> rows, weight = np.array([[255, 255, 0]]), np.array([[127, 127, 5]], dtype=np.int8)
        >>> found = simulate(rows, weight, Window(), Pairing.IN_ORDER)  # 255 * 254 = 64770 is clipped to 32767
        >>> found.num_sums, found.num_clipped, found.errors.tolist()
        (2, 1, [[-32003]])
    """
    if pairing is Pairing.ANY:
        msg = f"pairing {str(pairing)!r} is no order: simulate 'in_order' or 'channels'"
        raise RangeError(msg)
    taps = _Taps.of(codes, weight, window, zero_point)
    places = np.arange(1, weight[0].size + 1).reshape(1, *weight.shape[1:])
    pairs = pairs_of(places, pairing)[0] - 1  # -1: what is left over meets 0
    errors = np.zeros((len(codes), len(weight), *taps.positions), dtype=np.int64)
    num_clipped = 0
    for group, pair, channels, weights in _suspects(codes, weight, pairs, window.groups, zero_point):
        first, second = (taps.at(group, int(place)) for place in pair)
        for channel, (v, w) in zip(channels, weights, strict=True):
            sums = first * v + second * w
            off = sums.clip(INT16_MIN, INT16_MAX) - sums
            num_clipped += int(np.count_nonzero(off))
            errors[:, channel] += off
    return Clipped(num_sums=len(pairs) * errors.size, num_clipped=num_clipped, errors=errors)


def _suspects(
    codes: NDArray[Any], weight: NDArray[np.int8], pairs: NDArray[np.int64], groups: int, zero_point: int
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (group, the pair's two places, output channels, their two weights) where a sum could leave int16."""
    low, high = min(int(codes.min()), zero_point, 0), max(int(codes.max()), zero_point, 0)
    rows = weight.reshape(len(weight), -1).astype(np.int64)
    rows = np.concatenate([rows, np.zeros((len(rows), 1), dtype=np.int64)], axis=1)  # place -1 is 0
    met = rows[:, pairs]  # (O, pairs, 2)
    largest = np.maximum(met * low, met * high).sum(axis=2)
    smallest = np.minimum(met * low, met * high).sum(axis=2)
    could = (largest > INT16_MAX) | (smallest < INT16_MIN)
    per_group = len(weight) // groups
    for group, number in product(range(groups), range(len(pairs))):
        mine = slice(group * per_group, (group + 1) * per_group)
        channels = np.flatnonzero(could[mine, number]) + mine.start
        if len(channels):
            yield group, pairs[number], channels, met[channels, number]


@dataclass(frozen=True, kw_only=True)
class _Taps:
    """The input as each place of the window sees it.

    Attributes:
        padded: the input with zero points around, and between for a transposed convolution; int64.
        kernel: sizes of the window.
        positions: sizes of the output.
        stride: step over `padded`.
        dilation: distance between two taps.
        per_group: input channels in a group.
        mirrored: the window's places run backwards.
    """

    padded: NDArray[np.int64]
    kernel: tuple[int, ...]
    positions: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    per_group: int
    mirrored: bool

    @staticmethod
    def of(codes: NDArray[Any], weight: NDArray[np.int8], window: Window, zero_point: int) -> _Taps:
        kernel = weight.shape[2:]
        x = codes.astype(np.int64)
        before = after = window.padding
        stride = window.stride
        if window.output_padding is not None:
            x = _spread(x, window.stride, zero_point)
            reach = [d * (k - 1) for d, k in zip(window.dilation, kernel, strict=True)]
            before = tuple(r - p for r, p in zip(reach, window.padding, strict=True))
            after = tuple(b + o for b, o in zip(before, window.output_padding, strict=True))
            stride = (1,) * len(kernel)
        padded = _padded(x, before, after, zero_point)
        sizes = zip(padded.shape[2:], kernel, window.dilation, stride, strict=True)
        return _Taps(
            padded=padded,
            kernel=kernel,
            positions=tuple((size - d * (k - 1) - 1) // s + 1 for size, k, d, s in sizes),
            stride=stride,
            dilation=window.dilation,
            per_group=weight.shape[1],
            mirrored=window.output_padding is not None,
        )

    def at(self, group: int, place: int) -> NDArray[np.int64]:
        """Return what a place of the window sees at every output, (N, *positions); place -1 sees 0."""
        if place < 0:
            return np.zeros((len(self.padded), *self.positions), dtype=np.int64)
        channel, *tap = (int(index) for index in np.unravel_index(place, (self.per_group, *self.kernel)))
        if self.mirrored:
            tap = [size - 1 - t for size, t in zip(self.kernel, tap, strict=True)]
        per_dimension = zip(tap, self.dilation, self.stride, self.positions, strict=True)
        spans = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in per_dimension]
        own = self.padded[:, group * self.per_group + channel]
        return own[(slice(None), *spans)]


def _spread(x: NDArray[np.int64], stride: tuple[int, ...], zero_point: int) -> NDArray[np.int64]:
    """Return the input with zero points between its values, as a transposed convolution sees it."""
    sizes = [(size - 1) * step + 1 for size, step in zip(x.shape[2:], stride, strict=True)]
    spread = np.full((*x.shape[:2], *sizes), zero_point, dtype=np.int64)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = x
    return spread


def _padded(
    x: NDArray[np.int64], before: tuple[int, ...], after: tuple[int, ...], zero_point: int
) -> NDArray[np.int64]:
    """Return the input with zero points around; a negative number cuts."""
    added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *added], constant_values=zero_point)
    sizes = padded.shape[2:]
    cut = (slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, sizes, strict=True))
    return padded[(slice(None), slice(None), *cut)]
