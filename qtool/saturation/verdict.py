"""Whether a convolution or linear layer is right on a backend and CPU: the one place that decides it.

Inspect, load, evaluate and the stamp all ask `judge`. It takes what the catalog says of the kernel (where it adds in
int16, and which products meet), the codes that activations can have, and what was proved of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.backends.ranges import would_saturate
from qtool.backends.record import Pairing

if TYPE_CHECKING:
    from qtool.backends.record import Backend
    from qtool.types import Isa, Op

INT16_MIN, INT16_MAX = -32768, 32767
_LARGEST_WEIGHT = 128


class Sums(StrEnum):
    """What becomes of the sums of products in one kernel.

    EXACT: it adds in int32, or no two products of these codes can leave int16. PROVED_SAFE: it adds pairs in int16, and
    no two weights that meet reach past its ends. CAN_SATURATE: some do. UNKNOWN: the weights are not known.
    """

    EXACT = "exact"
    PROVED_SAFE = "proved_safe"
    CAN_SATURATE = "can_saturate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the pair sums of a weight can reach in one pairing.

    Attributes:
        pairing: which products meet.
        num_channels: output channels with a pair sum outside int16.
        worst_pair_sum: the possible pair sum of largest magnitude, with its sign; int16 ends at 32767.
    """

    pairing: Pairing
    num_channels: int
    worst_pair_sum: int


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What the sums of a layer depend on, whatever runs it.

    Attributes:
        op: a convolution or linear.
        a_lo: smallest code that the input can have.
        a_hi: largest code that the input can have.
        depthwise: a convolution with more than one group and one input channel in each.
        channel_multiplier: output channels per group of a depthwise convolution; None if nobody looked.
        bounds: what its weights reach in each pairing; empty if they are not known.
    """

    op: Op
    a_lo: int
    a_hi: int
    depthwise: bool = False
    channel_multiplier: int | None = None
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was decided of a layer.

    Attributes:
        sums: what becomes of them.
        bound: the bound that decided it, of the pairings that the kernel may have the worst; None where none did.
    """

    sums: Sums
    bound: Bound | None = None

    @property
    def is_right(self) -> bool:
        """Whether the output is the reference's for every input."""
        return self.sums in (Sums.EXACT, Sums.PROVED_SAFE)


def judge(record: Backend, isa: Isa, layer: Layer) -> Judgement:
    """Return what becomes of a layer's sums on a backend and CPU; what is not known counts against it.

    Args:
        record: the backend.
        isa: the CPU; `any` counts as one without VNNI.
        layer: what the sums depend on.

    Raises:
        RangeError: the op is unknown.

    Example:
        >>> codes = np.array([[71, 3, 107, -3]], dtype=np.int8)
        >>> layer = Layer(op=Op.LINEAR, a_lo=0, a_hi=255, bounds=bounds_of(codes, 0, 255))
        >>> judge(backend("fbgemm"), Isa.NO_VNNI, layer).sums.value  # 71 and 107 never meet
        'proved_safe'
        >>> judge(backend("onnxruntime"), Isa.NO_VNNI, layer).sums.value
        'can_saturate'
        >>> judge(backend("qnnpack"), Isa.NO_VNNI, layer).sums.value
        'exact'
    """
    clips = would_saturate(
        record, isa, layer.op, depthwise=layer.depthwise, channel_multiplier=layer.channel_multiplier
    )
    if not clips or not reaches_past_int16(layer.a_lo, layer.a_hi):
        return Judgement(sums=Sums.EXACT)
    worst = deciding_bound(record, layer)
    if worst is None:
        return Judgement(sums=Sums.UNKNOWN)
    return Judgement(sums=Sums.CAN_SATURATE if worst.num_channels else Sums.PROVED_SAFE, bound=worst)


def deciding_bound(record: Backend, layer: Layer) -> Bound | None:
    """Return the worst bound of the pairings that a backend's kernel may have; None if one of them is not known."""
    bounds = [_bound(layer, pairing) for pairing in _pairings(record, layer)]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    return max(known, key=lambda bound: (bound.num_channels > 0, abs(bound.worst_pair_sum)))


def reaches_past_int16(a_lo: int, a_hi: int) -> bool:
    """Return whether activation codes are so large that two products with int8 weights can leave int16.

    Example:
        >>> reaches_past_int16(0, 127), reaches_past_int16(0, 128), reaches_past_int16(-128, 127)
        (False, True, True)
    """
    return 2 * _LARGEST_WEIGHT * max(a_hi, -a_lo) > INT16_MAX


def _pairings(record: Backend, layer: Layer) -> tuple[Pairing, ...]:
    rule = record.rule(layer.op)
    if layer.depthwise and layer.channel_multiplier == 1 and rule.depthwise_pairings:
        return rule.depthwise_pairings
    return rule.pairings


def _bound(layer: Layer, pairing: Pairing) -> Bound | None:
    """Return the bound for a pairing; where it is missing that for any two, which is never smaller."""
    found = {bound.pairing: bound for bound in layer.bounds}
    return found.get(pairing) or found.get(Pairing.ANY)
