"""Proof, from weight codes and activation range alone, that no int16 pair sum can saturate.

Without VNNI, kernels add two products u8 x s8 in int16 (`vpmaddubsw`), which saturates outside -32768..32767. Which two
weights meet depends on how a kernel packs them, so any two of one output channel are taken to. Activations lie
anywhere in the range of their codes, and kernels fill up with zeros, so 0 is always possible.

    largest sum  = the two largest  of max(a_hi * w, a_lo * w) over the channel's weights w
    smallest sum = the two smallest of min(a_hi * w, a_lo * w)

For unsigned activations that is a_hi times the two largest weights of one sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from qtool.errors import RangeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT16_MIN, INT16_MAX = -32768, 32767


class SaturationVerdict(StrEnum):
    """What the weights say about int16 pair sums."""

    SAFE = "safe"
    CAN_SATURATE = "can_saturate"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What is proved of one weight.

    Attributes:
        verdict: safe, or can_saturate.
        num_channels: output channels with a pair sum outside int16.
        worst_pair_sum: the possible pair sum of largest magnitude, with its sign.
    """

    verdict: SaturationVerdict
    num_channels: int
    worst_pair_sum: int


def prove(weight_codes: NDArray[np.int8], a_lo: int, a_hi: int) -> Proof:
    """Return whether the sum of any two products of one output channel can leave int16.

    Args:
        weight_codes: int8 codes, output channels first: (out, in / groups, *kernel) or (out, in).
        a_lo: smallest activation code that can occur.
        a_hi: largest activation code that can occur.

    Raises:
        RangeError: the codes are not int8 or have no channels, or a_lo is above a_hi.

    Source: intrinsics guide of Intel, `_mm256_maddubs_epi16`; checked against engines with capped instruction sets
    in tests/saturation/test_pairs.py.

    Example:
        >>> codes = np.array([[71, 107, -3], [64, 64, 64]], dtype=np.int8)
        >>> prove(codes, 0, 255)
        Proof(verdict=<SaturationVerdict.CAN_SATURATE: 'can_saturate'>, num_channels=1, worst_pair_sum=45390)
        >>> prove(codes, 0, 127).verdict.value
        'safe'
    """
    _check(weight_codes, a_lo, a_hi)
    extremes = _extreme_weights(weight_codes).astype(np.int64)
    at_ends = extremes * min(a_lo, 0), extremes * max(a_hi, 0)
    largest = np.sort(np.maximum(*at_ends), axis=1)[:, -2:].sum(axis=1)
    smallest = np.sort(np.minimum(*at_ends), axis=1)[:, :2].sum(axis=1)
    leaves_int16 = (largest > INT16_MAX) | (smallest < INT16_MIN)
    sums = np.concatenate([largest, smallest])
    return Proof(
        verdict=SaturationVerdict.CAN_SATURATE if leaves_int16.any() else SaturationVerdict.SAFE,
        num_channels=int(leaves_int16.sum()),
        worst_pair_sum=int(sums[np.abs(sums).argmax()]),
    )


def _extreme_weights(weight_codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the two smallest and two largest weights of every channel, (out, 4): no other pair can be worse."""
    rows = weight_codes.reshape(weight_codes.shape[0], -1)
    num_zeros = max(2, 4 - rows.shape[1])  # what kernels fill up with; four columns, so that none is taken twice
    rows = np.pad(rows, ((0, 0), (0, num_zeros)))
    ends = (0, 1, rows.shape[1] - 2, rows.shape[1] - 1)
    return np.partition(rows, ends, axis=1)[:, ends]


def _check(weight_codes: NDArray[np.int8], a_lo: int, a_hi: int) -> None:
    if weight_codes.dtype != np.int8 or weight_codes.ndim == 0 or weight_codes.shape[0] == 0:
        msg = (
            f"weight codes are {weight_codes.dtype} of shape {weight_codes.shape}: "
            "the proof takes int8 codes, output channels first"
        )
        raise RangeError(msg)
    if a_lo > a_hi:
        msg = f"activation codes {a_lo}..{a_hi}: the smallest must not be above the largest"
        raise RangeError(msg)
