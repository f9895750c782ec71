"""Proof, from the weights and the activation range alone, that int16 pair sums cannot saturate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

INT16_MIN, INT16_MAX = -32768, 32767


class SaturationVerdict(StrEnum):
    """What the weights say about int16 pair sums."""

    SAFE = "safe"
    CAN_SATURATE = "can_saturate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The verdict for one weight.

    Attributes:
        verdict: safe, or can_saturate.
        num_channels: output channels that can saturate.
        worst_pair_sum: the pair sum of largest magnitude that any channel can reach, signed.
    """

    verdict: SaturationVerdict
    num_channels: int
    worst_pair_sum: int


def prove(weight_codes: npt.NDArray[np.int8], a_lo: int, a_hi: int) -> Proof:
    """Return whether any sum of two products of one output channel can leave int16."""
    rows = weight_codes.reshape(weight_codes.shape[0], -1).astype(np.int64)
    rows = np.pad(rows, ((0, 0), (0, 2)))
    ordered = np.sort(rows, axis=1)
    low, high = min(a_lo, 0), max(a_hi, 0)
    two_largest = ordered[:, -2:].sum(axis=1)
    two_smallest = ordered[:, :2].sum(axis=1)
    largest = np.maximum(high * two_largest, low * two_smallest)
    smallest = np.minimum(high * two_smallest, low * two_largest)
    num_channels = int(((largest > INT16_MAX) | (smallest < INT16_MIN)).sum())
    extremes = np.concatenate([largest, smallest])
    worst = int(extremes[np.abs(extremes).argmax()])
    verdict = SaturationVerdict.CAN_SATURATE if num_channels else SaturationVerdict.SAFE
    return Proof(verdict=verdict, num_channels=num_channels, worst_pair_sum=worst)
