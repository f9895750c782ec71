"""Rules on one int8 node and the target it is asked to run on: each is a pure function, and they stand in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends import registry
from qtool.backends.ranges import CPU_WORDS, would_saturate
from qtool.backends.record import Support
from qtool.inspection import codes
from qtool.types import Isa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.backends.record import Backend
    from qtool.inspection.codes import Finding
    from qtool.stamp.schema import NodeStamp


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a file is asked to run on.

    Attributes:
        backend: the backend.
        isa: the CPU.
        is_own: they are the ones it was made for.
        host_isa: the CPU that the backend's kernels find on this machine; `any` if unknown, None if nobody looked.
    """

    backend: Backend
    isa: Isa
    is_own: bool
    host_isa: Isa | None = None


def other_backend(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node that was made for another backend."""
    if question.backend.name not in node.backends:
        yield codes.OTHER_BACKEND.finding(
            f"made for {', '.join(map(repr, node.backends))}, asked for {question.backend.name!r}",
            node=node.name,
            backend=question.backend.name,
        )


def unsupported_op(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node whose op the backend has no int8 kernel for."""
    if node.op is not None and question.backend.rule(node.op).support is Support.UNSUPPORTED:
        yield codes.UNSUPPORTED_OP.finding(
            f"{question.backend.name} has no int8 {node.op.value}", node=node.name, backend=question.backend.name
        )


def can_saturate(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node whose kernel clips full-range codes on that CPU: as an error, or as proved safe by its weights."""
    if not node.uses_full_range or not _clips(node, question):
        return
    used = node.inputs[0]
    kernel = f"{question.backend.name}'s {'depthwise ' if node.depthwise else ''}{node.op} kernel"
    setting = f"input codes {used.qmin}..{used.qmax}, and {kernel} adds pairs in int16 on {CPU_WORDS[question.isa]}"
    if node.is_proved_safe:
        yield codes.PROVED_SAFE.finding(f"{setting}; no pair of its weights leaves int16", node=node.name)
    elif node.saturation is None:
        yield codes.CAN_SATURATE.finding(f"{setting}; no weight codes yet to prove it safe", node=node.name)
    else:
        found = node.saturation
        worst = f"{found.num_channels} output channels can pass its ends, worst pair sum {found.worst_pair_sum}"
        yield codes.CAN_SATURATE.finding(f"{setting}; {worst}", node=node.name)


def reduced_in_vain(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node that gave up a bit that the asked target does not need; what the file's own target says stands."""
    if question.is_own or not node.multiplies_codes or not node.reduce_range or _clips(node, question):
        return
    used = node.inputs[0]
    yield codes.REDUCED_IN_VAIN.finding(
        f"input codes {used.qmin}..{used.qmax}, but {question.backend.name}'s {node.op} is exact with all 8 bits for "
        f"isa {question.isa.value}: accuracy is left on the table",
        node=node.name,
        backend=question.backend.name,
    )


def granularity(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node whose weight has scales the backend cannot do."""
    if node.weight is None or node.op is None:
        return
    possible = question.backend.rule(node.op).granularities
    if possible and node.weight.granularity not in possible:
        yield codes.GRANULARITY.finding(
            f"its weight is per {node.weight.granularity.value}, {question.backend.name} can do "
            f"per {' or per '.join(each.value for each in possible)}",
            node=node.name,
            backend=question.backend.name,
        )


def codes_dtype(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node whose codes have a dtype the backend does not take."""
    wanted = [(tensor, question.backend.activation_dtype) for tensor in (*node.inputs, node.output)]
    wanted.append((node.weight, question.backend.weight_dtype))
    for tensor, dtype in wanted:
        if tensor is not None and tensor.dtype is not dtype:
            yield codes.CODES_DTYPE.finding(
                f"{tensor.edge} is {tensor.dtype.value}, {question.backend.name} takes {dtype.value}", node=node.name
            )


def host_without_vnni(node: NodeStamp, question: Question) -> Iterator[Finding]:
    """Yield a node that is right on the CPU asked for, but not on this machine."""
    if question.host_isa is not Isa.NO_VNNI or not node.requires_full_range:
        return
    if _clips_on(Isa.NO_VNNI, node, question) and not _clips(node, question):
        yield codes.HOST_WITHOUT_VNNI.finding(
            f"{question.backend.name} has no VNNI on this machine, and the node can saturate here", node=node.name
        )


def depends_on_cpu(node: NodeStamp) -> bool:
    """Return whether some CPU clips the node's full-range codes, on a backend it was made for or an unknown one."""
    if not node.multiplies_codes or not set(node.backends) <= set(registry.backend_names()):
        return node.multiplies_codes
    return any(
        _clips(node, Question(backend=registry.backend(name), isa=Isa.ANY, is_own=True)) for name in node.backends
    )


def _clips(node: NodeStamp, question: Question) -> bool:
    return _clips_on(question.isa, node, question)


def _clips_on(isa: Isa, node: NodeStamp, question: Question) -> bool:
    """Return whether the node's kernel clips full-range codes on that CPU."""
    if node.op is None:
        return False
    return would_saturate(
        question.backend, isa, node.op, depthwise=node.depthwise, channel_multiplier=node.channel_multiplier
    )


TARGET_RULES: tuple[Callable[[NodeStamp, Question], Iterator[Finding]], ...] = (
    other_backend,
    unsupported_op,
    can_saturate,
    reduced_in_vain,
    granularity,
    codes_dtype,
    host_without_vnni,
)
