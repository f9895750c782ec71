"""Rules on one int8 node and the target it is asked to run on: each is a pure function, and they stand in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends import registry
from qtool.backends.faults import conv_fault
from qtool.backends.ranges import CPU_WORDS, would_saturate
from qtool.backends.record import Pairing, Support
from qtool.inspection import codes
from qtool.readers.facts import Role
from qtool.saturation.verdict import Sums, judge
from qtool.types import CONVOLUTIONS, MAC_OPS, Isa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.backends.record import Backend
    from qtool.inspection.codes import Finding
    from qtool.inspection.nodes import NodeReport
    from qtool.stamp.schema import NodeStamp


_QNNPACK = "qnnpack"
_MIN_CONV_AXES = 3
_PAIRING_WORDS = {
    Pairing.ANY: "any two weights",
    Pairing.IN_ORDER: "two weights that meet in its order",
    Pairing.CHANNELS: "two neighbouring input channels",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a file is asked to run on.

    Attributes:
        backend: the backend.
        isa: the CPU.
        is_own: they are the ones it was made for.
        host_isa: the CPU that the backend's kernels find on this machine; `any` if unknown, None if nobody looked.
        lacks_engine: it is to run on this machine, which has not the backend's engine, or may not have it.
    """

    backend: Backend
    isa: Isa
    is_own: bool
    host_isa: Isa | None = None
    lacks_engine: bool = False


def other_backend(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node that was made for another backend; of one that says none, nothing can be said."""
    if node.backends and question.backend.name not in node.backends:
        yield codes.OTHER_BACKEND.finding(
            f"made for {', '.join(map(repr, node.backends))}, asked for {question.backend.name!r}",
            node=node.name,
            backend=question.backend.name,
        )


def unsupported_op(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node whose op the backend has no int8 kernel for."""
    if node.op is not None and question.backend.rule(node.op).support is Support.UNSUPPORTED:
        yield codes.UNSUPPORTED_OP.finding(
            f"{question.backend.name} has no int8 {node.op.value}", node=node.name, backend=question.backend.name
        )


def can_saturate(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node whose kernel clips full-range codes on that CPU: as an error, or as proved safe by its weights."""
    if not node.multiplies_codes or node.op is None:
        return
    found = judge(question.backend, question.isa, node.layer)
    if found.sums is Sums.EXACT:
        return
    low, high = node.layer.a_lo, node.layer.a_hi
    kernel = f"{question.backend.name}'s {'depthwise ' if node.depthwise else ''}{node.op} kernel"
    setting = f"input codes {low}..{high}, and {kernel} adds pairs in int16 on {CPU_WORDS[question.isa]}"
    if found.bound is None:
        yield codes.CAN_SATURATE.finding(f"{setting}; no weight codes yet to prove it safe", node=node.name)
        return
    worst = f"worst sum {found.bound.worst_pair_sum} of {_PAIRING_WORDS[found.bound.pairing]}"
    if found.is_right:
        yield codes.PROVED_SAFE.finding(f"{setting}; no pair leaves it, {worst}", node=node.name)
    else:
        num = found.bound.num_channels
        channels = f"{num} output channel{'' if num == 1 else 's'} can pass its ends"
        yield codes.CAN_SATURATE.finding(f"{setting}; {channels}, {worst}", node=node.name)


def reduced_in_vain(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node that gave up a bit that the asked target does not need; what the file's own target says stands."""
    if question.is_own or not node.multiplies_codes or not node.reduce_range or _clips(node, question):
        return
    setting = f"input codes {node.layer.a_lo}..{node.layer.a_hi}, but {question.backend.name}'s {node.op} is exact"
    yield codes.REDUCED_IN_VAIN.finding(
        f"{setting} with all 8 bits for isa {question.isa.value}: accuracy is left on the table",
        node=node.name,
        backend=question.backend.name,
    )


def granularity(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node whose weight has scales the backend cannot do."""
    weight = node.tensor(Role.WEIGHT)
    if weight is None or not weight.is_quantized or node.op is None:
        return
    possible = question.backend.rule(node.op).granularities
    if possible and weight.granularity not in possible:
        yield codes.GRANULARITY.finding(
            f"its weight is per {weight.granularity}, {question.backend.name} can do "
            f"per {' or per '.join(each.value for each in possible)}",
            node=node.name,
            backend=question.backend.name,
        )


def codes_dtype(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node whose codes have a dtype the backend does not take."""
    wanted = {
        Role.INPUT: question.backend.activation_dtype,
        Role.WEIGHT: question.backend.weight_dtype,
        Role.OUTPUT: question.backend.activation_dtype,
    }
    for tensor in node.tensors:
        dtype = wanted.get(tensor.role)
        if tensor.is_quantized and dtype is not None and tensor.dtype != dtype:
            yield codes.CODES_DTYPE.finding(
                f"{tensor.name} is {tensor.dtype}, {question.backend.name} takes {dtype.value}", node=node.name
            )


def host_without_vnni(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node that is right on the CPU asked for, but not on this machine."""
    if question.host_isa is not Isa.NO_VNNI or not node.multiplies_codes:
        return
    here, there = (judge(question.backend, isa, node.layer).is_right for isa in (Isa.NO_VNNI, question.isa))
    if there and not here:
        yield codes.HOST_WITHOUT_VNNI.finding(
            f"{question.backend.name} has no VNNI on this machine, and the node can saturate here", node=node.name
        )


def engine_absent(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node that is to run on an engine which this machine has not."""
    if question.lacks_engine:
        yield codes.NO_ENGINE.finding(
            f"torch has no engine {question.backend.engine!r} here, as far as is known", node=node.name
        )


def large_multiplier(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a node whose sums are scaled up to codes, which older releases of qnnpack refuse."""
    if question.backend.name != _QNNPACK or node.op not in MAC_OPS:
        return
    if node.multiplier is not None and node.multiplier >= 1:
        yield codes.LARGE_MULTIPLIER.finding(
            f"input scale * weight scale / output scale is {node.multiplier:.4g}", node=node.name
        )


def wrong_geometry(node: NodeReport, question: Question) -> Iterator[Finding]:
    """Yield a convolution that the backend's kernel must never be given."""
    weight = node.tensor(Role.WEIGHT)
    shape = weight.shape if weight is not None and weight.shape is not None else ()
    if node.op is None or node.op not in CONVOLUTIONS or node.groups is None or len(shape) < _MIN_CONV_AXES:
        return
    fault = conv_fault(question.backend, node.op, shape, node.groups)
    if fault:
        yield codes.WRONG_GEOMETRY.finding(fault, node=node.name, backend=question.backend.name)


def depends_on_cpu(node: NodeReport | NodeStamp) -> bool:
    """Return whether some CPU clips the node's full-range codes, on a backend it was made for or an unknown one."""
    if not node.multiplies_codes or not set(node.backends) <= set(registry.backend_names()):
        return node.multiplies_codes
    return any(
        _clips(node, Question(backend=registry.backend(name), isa=Isa.ANY, is_own=True)) for name in node.backends
    )


def _clips(node: NodeReport | NodeStamp, question: Question) -> bool:
    """Return whether the node's kernel clips codes of the full range on that CPU, whatever the weights."""
    if node.op is None:
        return False
    return would_saturate(
        question.backend, question.isa, node.op, depthwise=node.depthwise, channel_multiplier=node.channel_multiplier
    )


TARGET_RULES: tuple[Callable[[NodeReport, Question], Iterator[Finding]], ...] = (
    other_backend,
    unsupported_op,
    can_saturate,
    reduced_in_vain,
    granularity,
    codes_dtype,
    host_without_vnni,
    engine_absent,
    large_multiplier,
    wrong_geometry,
)
