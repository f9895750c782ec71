"""Proof, from weight codes and activation range alone, that no int16 pair sum can saturate.

Without VNNI, kernels add two products u8 x s8 in int16 (`vpmaddubsw`), which saturates outside -32768..32767. Which two
weights meet depends on how a kernel packs them: a `Pairing`. Activations lie anywhere in the range of their codes, and
kernels fill up with zeros, so 0 is always possible.

    largest sum  = max over the pairs (v, w) of max(a_hi * v, a_lo * v) + max(a_hi * w, a_lo * w)
    smallest sum = min over the pairs (v, w) of min(a_hi * v, a_lo * v) + min(a_hi * w, a_lo * w)

For unsigned activations and any pair that is a_hi times the two largest weights of one sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from qtool.backends.record import Pairing
from qtool.errors import RangeError
from qtool.saturation.reach import reach_of
from qtool.saturation.verdict import INT16_MAX, INT16_MIN, Bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qtool.saturation.reach import Reach


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


def prove(weight_codes: NDArray[np.int8], a_lo: int, a_hi: int, pairing: Pairing = Pairing.ANY) -> Proof:
    """Return whether the sum of two products of one output channel that meet in a kernel can leave int16.

    Args:
        weight_codes: int8 codes, output channels first: (out, in / groups, *kernel) or (out, in).
        a_lo: smallest activation code that can occur.
        a_hi: largest activation code that can occur.
        pairing: which two meet.

    Raises:
        RangeError: the codes are not int8 or have no channels, or a_lo is above a_hi.

    Source: intrinsics guide of Intel, `_mm256_maddubs_epi16`; checked against engines with capped instruction sets
    in tests/saturation.

    Example:
        >>> codes = np.array([[71, 3, 107, -3], [64, 64, 64, 64]], dtype=np.int8)
        >>> prove(codes, 0, 255)
        Proof(verdict=<SaturationVerdict.CAN_SATURATE: 'can_saturate'>, num_channels=1, worst_pair_sum=45390)
        >>> prove(codes, 0, 255, Pairing.IN_ORDER).worst_pair_sum  # 64 + 64: 71 meets 3, and 107 meets -3
        32640
        >>> prove(codes, 0, 127).verdict.value
        'safe'
    """
    _check(weight_codes, a_lo, a_hi)
    reach = reach_of(weight_codes, a_lo, a_hi, (pairing,))
    return _proof(reach.sums_of(pairing, a_lo, a_hi))


def bounds_of(weight_codes: NDArray[np.int8], a_lo: int, a_hi: int) -> tuple[Bound, ...]:
    """Return what the pair sums of a weight can reach, in every pairing.

    Args:
        weight_codes: int8 codes, output channels first: (out, in / groups, *kernel) or (out, in).
        a_lo: smallest code that the input can have.
        a_hi: largest code that the input can have.

    Raises:
        RangeError: the codes are not int8 or have no channels, or a_lo is above a_hi.
    """
    _check(weight_codes, a_lo, a_hi)
    return bounds_from(reach_of(weight_codes, a_lo, a_hi), a_lo, a_hi)


def bounds_from(reach: Reach, a_lo: int, a_hi: int) -> tuple[Bound, ...]:
    """Return the same as `bounds_of`, from the reach of a weight that was read in parts."""
    proofs = {pairing: _proof(reach.sums_of(pairing, a_lo, a_hi)) for pairing in Pairing}
    return tuple(
        Bound(pairing=pairing, num_channels=proof.num_channels, worst_pair_sum=proof.worst_pair_sum)
        for pairing, proof in proofs.items()
    )


def _proof(sums: NDArray[np.int64]) -> Proof:
    """Return the proof from the largest and the smallest sum of each channel, (2, channels)."""
    largest, smallest = sums
    leaves_int16 = (largest > INT16_MAX) | (smallest < INT16_MIN)
    return Proof(
        verdict=SaturationVerdict.CAN_SATURATE if leaves_int16.any() else SaturationVerdict.SAFE,
        num_channels=int(leaves_int16.sum()),
        worst_pair_sum=int(sums.flat[np.abs(sums).argmax()]),
    )


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
