"""Which integer codes a tensor may use: the only home of qmin, qmax and reduce_range.

The rule in words. A kernel that adds two u8 x s8 products in int16 saturates above 32767. With activation codes
0..255 two products reach 255 * 127 * 2 = 64770; with 0..127 they reach 127 * 127 * 2 = 32258, which fits. So an
activation gives up its eighth bit where one of the int8 kernels that read it would saturate on the CPU it is made for,
and nowhere else. Nothing downstream takes a boolean `reduce_range` and works out a range from it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends.record import RangeName, Saturates, Support
from qtool.errors import RangeError, UsageError
from qtool.types import DTYPE_LIMITS, MAC_OPS, Dtype, Granularity, Isa, Op, Reduce, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.backends.record import Backend

INT_RANGES: dict[tuple[Dtype, RangeName], tuple[int, int]] = {
    (Dtype.UINT8, RangeName.FULL): DTYPE_LIMITS[Dtype.UINT8],
    (Dtype.UINT8, RangeName.REDUCED): (0, 127),
    (Dtype.INT8, RangeName.FULL): DTYPE_LIMITS[Dtype.INT8],
    (Dtype.INT8, RangeName.REDUCED): (-64, 63),
    # Without -128, so that a code can be negated when a negative batch norm gamma is folded into the weight.
    (Dtype.INT8, RangeName.SYMMETRIC): (-127, 127),
}

CPU_WORDS = {
    Isa.ANY: "a CPU that may lack VNNI",
    Isa.VNNI: "a CPU with VNNI",
    Isa.NO_VNNI: "a CPU without VNNI",
}
_ASKED_FOR = "config: reduce_range"
_PROOF = "qtool.saturation"
_NO_AXIS = "its output channels lie on no axis of the weight, which is (in, out / groups, ...)"


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """One int8 node that reads an activation.

    Attributes:
        node: its name for people.
        op: its op pattern.
        depthwise: a convolution with more than one group and one input channel in each.
        channel_multiplier: output channels per group of a depthwise convolution; None if nobody looked.
        reduce: what the config asks for at this node.
        proved_safe: its weights are proved not to saturate with all codes of the input; counts with `per_node`.
    """

    node: str
    op: Op
    depthwise: bool = False
    channel_multiplier: int | None = None
    reduce: Reduce = Reduce.AUTO
    proved_safe: bool = False

    @property
    def keeps_full_range(self) -> bool:
        """Whether it is let off: a proof says that it needs no reduction, and the config wants it to count."""
        return self.reduce is Reduce.PER_NODE and self.proved_safe


def int_range(dtype: Dtype, name: RangeName) -> tuple[int, int]:
    """Return (qmin, qmax) of a named range.

    Raises:
        RangeError: the dtype has no range of that name.

    Example:
        >>> int_range(Dtype.UINT8, RangeName.REDUCED)
        (0, 127)
    """
    try:
        return INT_RANGES[dtype, name]
    except KeyError:
        known = ", ".join(f"{known_dtype.value} {known_name.value}" for known_dtype, known_name in INT_RANGES)
        msg = f"dtype {str(dtype)!r} has no {str(name)!r} range; ranges are known for: {known}"
        raise RangeError(msg) from None


def would_saturate(
    backend: Backend, isa: Isa, op: Op, *, depthwise: bool = False, channel_multiplier: int | None = None
) -> bool:
    """Return whether the kernel of an op can saturate with full-range activations on that CPU.

    `Isa.ANY` promises nothing, so it counts as a CPU without VNNI. A depthwise convolution with several output
    channels per group may run on the depthwise kernel or on the other one, so the worse of both counts; so it does
    where `channel_multiplier` is not known.

    Args:
        backend: what runs the op.
        isa: the CPU it runs on.
        op: the op.
        depthwise: a convolution with more than one group and one input channel in each.
        channel_multiplier: output channels per group of a depthwise convolution; None if nobody looked.

    Raises:
        RangeError: the op is unknown.

    Example:
        >>> onednn = backend("onednn")
        >>> would_saturate(onednn, Isa.ANY, Op.CONV2D, depthwise=True, channel_multiplier=1)
        False
        >>> would_saturate(onednn, Isa.ANY, Op.CONV2D, depthwise=True, channel_multiplier=4)
        True
    """
    rule = backend.rule(op)
    kernels = {rule.saturates}
    if depthwise:
        kernels = {rule.depthwise_saturates} if channel_multiplier == 1 else kernels | {rule.depthwise_saturates}
    return Saturates.ALWAYS in kernels or (Saturates.WITHOUT_VNNI in kernels and isa is not Isa.VNNI)


def activation_spec(backend: Backend, isa: Isa, consumers: Sequence[Consumer], *, observer: str) -> Spec:
    """Return how an activation is quantized, given the int8 nodes that read it.

    One node that needs the reduced range is enough to reduce it. `never` at a node means that this node does not
    ask for it; where it then saturates, `why` says so and the plan warns.

    Args:
        backend: what runs the model.
        isa: the CPU it is made for.
        consumers: the int8 nodes that read the activation; none if only the model's output does.
        observer: name of the observer, passed through.

    Raises:
        RangeError: a consumer's op is unknown, or unsupported by the backend.
        UsageError: one consumer asks never to reduce what another needs reduced.

    Example:
        >>> conv = Consumer(node="features.0", op=Op.CONV2D)
        >>> spec = activation_spec(backend("fbgemm"), Isa.ANY, [conv], observer="minmax")
        >>> spec.qmin, spec.qmax, spec.reduce_range
        (0, 127, True)
    """
    for consumer in consumers:
        if backend.rule(consumer.op).support is Support.UNSUPPORTED:
            msg = f"{consumer.node!r}: {backend.name} has no int8 {consumer.op.value}; keep that node in float"
            raise RangeError(msg)
    reduce_range, why, source = _reduction(backend, isa, consumers)
    name = RangeName.REDUCED if reduce_range else RangeName.FULL
    qmin, qmax = int_range(backend.activation_dtype, name)
    return Spec(
        dtype=backend.activation_dtype,
        qmin=qmin,
        qmax=qmax,
        reduce_range=reduce_range,
        observer=observer,
        why=why,
        source=source,
    )


def weight_spec(
    backend: Backend, op: Op, *, granularity: Granularity | None, axis: int | None, observer: str, node: str = ""
) -> Spec:
    """Return how a weight is quantized.

    Args:
        backend: what runs the model.
        op: the op the weight belongs to.
        granularity: what the config asks for; None takes the best the backend can do.
        axis: axis of the output channels, used with one scale per channel; None where they lie on no single axis, as
            those of a transposed convolution with groups: then there is one scale.
        observer: name of the observer, passed through.
        node: name of the node, for messages; empty for the op in general.

    Raises:
        RangeError: the op is unknown, or has no int8 weight on this backend.
        UsageError: the backend cannot do the granularity asked for, or the weight has no axis for it.

    Example:
        >>> spec = weight_spec(backend("qnnpack"), Op.LINEAR, granularity=None, axis=0, observer="minmax")
        >>> spec.qmin, spec.qmax, spec.granularity.value
        (-127, 127, 'channel')
    """
    rule = backend.rule(op)
    if not rule.granularities:
        with_weight = ", ".join(rule.op.value for rule in backend.rules if rule.granularities)
        msg = f"{op.value!r} has no int8 weight on {backend.name}; ops that have one: {with_weight}"
        raise RangeError(msg)
    possible = rule.granularities if axis is not None else (Granularity.TENSOR,)
    chosen = possible[0] if granularity is None else granularity
    if chosen not in possible:
        allowed = " or ".join(repr(each.value) for each in possible)
        where = f"{node!r}: " if node else ""
        cause = f"on {backend.name}" if axis is not None else f"with groups ({_NO_AXIS})"
        msg = f"{where}granularity {chosen.value!r} is not possible for {op.value} {cause}: use {allowed}"
        raise UsageError(msg)
    qmin, qmax = int_range(backend.weight_dtype, backend.weight_range)
    best = "is the best the backend can do" if axis is not None else f"since {_NO_AXIS}"
    asked = best if granularity is None else "is asked for"
    return Spec(
        dtype=backend.weight_dtype,
        qmin=qmin,
        qmax=qmax,
        granularity=chosen,
        axis=axis if chosen is Granularity.CHANNEL else None,
        symmetric=True,
        observer=observer,
        why=f"{backend.weight_range.value}, so that codes can be negated; one scale a {chosen.value} {asked}",
        source=rule.source,
    )


def check_activation(spec: Spec) -> None:
    """Check that an activation's range and its reduce_range flag say the same.

    Raises:
        RangeError: they contradict each other; the message names both.

    Example:
        >>> check_activation(Spec(dtype=Dtype.UINT8, qmin=0, qmax=63, reduce_range=True))
        Traceback (most recent call last):
        RangeError: reduce_range=True contradicts the range 0..63: reduced uint8 is 0..127 ...
    """
    name = RangeName.REDUCED if spec.reduce_range else RangeName.FULL
    qmin, qmax = int_range(spec.dtype, name)
    if (spec.qmin, spec.qmax) != (qmin, qmax):
        msg = (
            f"reduce_range={spec.reduce_range} contradicts the range {spec.qmin}..{spec.qmax}: "
            f"{name.value} {spec.dtype.value} is {qmin}..{qmax}. Take both from the plan, set neither by hand"
        )
        raise RangeError(msg)


def _reduction(backend: Backend, isa: Isa, consumers: Sequence[Consumer]) -> tuple[bool, str, str]:
    """Return whether the range is reduced, why, and the source of the rule that decided it."""
    readers = [consumer for consumer in consumers if consumer.op in MAC_OPS]
    if not readers:
        return False, "no int8 convolution or linear reads it", backend.source
    never = next((reader for reader in readers if reader.reduce is Reduce.NEVER), None)
    always = next((reader for reader in readers if reader.reduce is Reduce.ALWAYS), None)
    if always:
        _check_never(never, f"{always.node!r} asks for always")
        return True, f"asked for: always ({always.node})", _ASKED_FOR
    saturating = [reader for reader in readers if _can_saturate(backend, isa, reader)]
    auto = next((r for r in saturating if r.reduce is not Reduce.NEVER and not r.keeps_full_range), None)
    if auto:
        _check_never(never, f"{auto.node!r} would saturate on {CPU_WORDS[isa]}")
        why = f"{_kernel(backend, auto)} adds pairs in int16 on {CPU_WORDS[isa]} ({auto.node})"
        return True, why, backend.rule(auto.op).source
    unproved = [reader for reader in saturating if not reader.keeps_full_range]
    if saturating and not unproved:
        why = f"no pair of weights of what reads it leaves int16 ({saturating[0].node}), on {CPU_WORDS[isa]} too"
        return False, why, _PROOF
    if unproved:
        first = unproved[0]
        why = f"asked for: never ({first.node}), but {_kernel(backend, first)} can saturate on {CPU_WORDS[isa]}"
        return False, why, _ASKED_FOR
    first = readers[0]
    return False, f"{_kernel(backend, first)} is exact on {CPU_WORDS[isa]}", backend.rule(first.op).source


def _check_never(never: Consumer | None, but: str) -> None:
    """Refuse to reduce what one reader asks to keep: a request is honoured or is an error."""
    if never:
        msg = (
            f"{never.node!r} asks for reduce_range: never, but it shares its input's range with others, and {but}. "
            f"Ask for the same at all nodes that read the value"
        )
        raise UsageError(msg)


def _can_saturate(backend: Backend, isa: Isa, reader: Consumer) -> bool:
    return would_saturate(
        backend, isa, reader.op, depthwise=reader.depthwise, channel_multiplier=reader.channel_multiplier
    )


def _kernel(backend: Backend, reader: Consumer) -> str:
    return f"{backend.name}'s {'depthwise ' if reader.depthwise else ''}{reader.op.value}"
