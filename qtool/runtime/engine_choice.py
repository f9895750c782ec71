"""Which engine runs each node of a model here, and whether its numbers will be right on this CPU.

A node runs on the engine it was made for. Where that one would saturate on this CPU, it runs on qnnpack, which never
does. What is left is a mismatch: an error, or what `on_mismatch` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.backends.engines import OnMismatch, backend_of_engine, check_on_mismatch, engine_names
from qtool.backends.host import HostFacts, host_facts
from qtool.backends.registry import backend as find_backend
from qtool.errors import MismatchError, MissingEngineError, UsageError
from qtool.lowering.engine_switch import available_engines
from qtool.lowering.missing_kernel import missing_kernel
from qtool.saturation.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qtool.backends.record import Backend
    from qtool.lowering.mac_nodes import MacNode
    from qtool.stamp.schema import Stamp
    from qtool.types import Isa

EXACT_ENGINE = "qnnpack"
"""Sums products in int32 on every CPU, so it runs what others saturate on."""


@dataclass(frozen=True)
class Placed:
    """Where a node runs.

    Attributes:
        engine: the torch engine.
        why: the reason, in words.
        wrong: why its numbers may be wrong there; empty where they are right.
    """

    engine: str
    why: str
    wrong: str = ""


@dataclass(frozen=True)
class Here:
    """What can run here.

    Attributes:
        engines: the engines of this torch on this machine.
        host: what is known of the machine.
    """

    engines: tuple[str, ...] = field(default_factory=available_engines)
    host: HostFacts = field(default_factory=host_facts)


class _Kind(StrEnum):
    MISSING = "missing"
    NO_KERNEL = "no kernel"
    SATURATES = "saturates"


@dataclass(frozen=True)
class _Misfit:
    """A node that the engines wanted for it do not run, or not right."""

    node: MacNode
    kind: _Kind
    record: Backend
    why: str


@dataclass(frozen=True)
class Placement:
    """Where every node runs.

    Attributes:
        nodes: by the node's name in the graph.
        warning: what a person must know of it; empty if all is as the file says.
    """

    nodes: Mapping[str, Placed]
    warning: str = ""


def place_nodes(
    stamp: Stamp,
    nodes: Sequence[MacNode],
    *,
    engine: str | None = None,
    on_mismatch: str = OnMismatch.ERROR,
    here: Here | None = None,
) -> Placement:
    """Return where each node runs.

    Args:
        stamp: what the model was made for.
        nodes: its convolutions and linear layers.
        engine: the engine for all; None takes for each node the first of its backends that is here, and qnnpack where
            that one would saturate.
        on_mismatch: what to do with nodes that are left.
        here: what can run here; None asks.

    Raises:
        UsageError: no such engine; no such way to go on; or none of a node's backends has an engine in torch.
        MissingEngineError: this torch does not have an engine that is needed.
        MismatchError: an engine would saturate silently on this CPU, or has no kernel; the nodes are named.
    """
    here, way = here or Here(), check_on_mismatch(on_mismatch)
    asked = None if engine is None else backend_of_engine(engine)
    if asked is not None and not nodes:
        _check_is_here(asked, here)
    stamps = {node.name: node for node in stamp.nodes}
    found: dict[str, Placed] = {}
    misfits: list[_Misfit] = []
    for node in nodes:
        wanted = [asked] if asked else [find_backend(name) for name in stamps.get(node.label, stamp).backends]
        outcome = _place(node, wanted, here, is_asked=asked is not None)
        if isinstance(outcome, _Misfit):
            misfits.append(outcome)
        else:
            found[node.name] = outcome
    moved, left = _move(misfits, here, way, asked)
    if left:
        error = _refusal(left, stamp, here)
        raise error
    placed = {**found, **moved}
    return Placement({node.name: placed[node.name] for node in nodes}, _warning(misfits, moved))


def safe_engines(node: MacNode, here: Here) -> tuple[str, ...]:
    """Return the engines that are here, have a kernel for a node, and are right on this CPU."""
    records = [backend_of_engine(name) for name in engine_names()]
    return tuple(record.name for record in records if _fit(node, record, here) is None)


# --- one node


def _place(node: MacNode, wanted: Sequence[Backend], here: Here, *, is_asked: bool) -> Placed | _Misfit:
    """Return the first of the wanted backends that runs a node, or why the first that is here does not."""
    tried = [_fit(node, record, here) for record in wanted]
    why = "asked for" if is_asked else f"made for {', '.join(record.name for record in wanted)}"
    for record, misfit in zip(wanted, tried, strict=True):
        if misfit is None:
            return Placed(str(record.engine), why)
    misfits = [misfit for misfit in tried if misfit is not None]
    return next((misfit for misfit in misfits if misfit.kind is not _Kind.MISSING), misfits[0])


def _fit(node: MacNode, record: Backend, here: Here) -> _Misfit | None:
    """Return what keeps a backend from running a node right; None if nothing does."""
    if record.engine is None or record.engine not in here.engines:
        return _Misfit(node, _Kind.MISSING, record, f"{record.name} is not here")
    gap = missing_kernel(
        record.engine, node.op, node.codes.shape, node.geometry, has_scale_per_channel=node.has_scale_per_channel
    )
    if gap:
        return _Misfit(node, _Kind.NO_KERNEL, record, gap)
    isa = here.host.isa_of(record.name)
    if _is_wrong_on(record, isa, node):
        why = f"the input needs its full range, and {record.name} on this CPU ({isa}) adds products in int16"
        return _Misfit(node, _Kind.SATURATES, record, why)
    return None


def _is_wrong_on(record: Backend, isa: Isa, node: MacNode) -> bool:
    """Whether a backend can saturate on a node on that CPU; a stamp can lie, so its weights are asked."""
    return not judge(record, isa, node.layer).is_right


# --- nodes that do not fit


def _move(
    misfits: Iterable[_Misfit], here: Here, way: OnMismatch, asked: Backend | None
) -> tuple[dict[str, Placed], list[_Misfit]]:
    """Return where nodes go instead, and those that nowhere is right for."""
    moved: dict[str, Placed] = {}
    left: list[_Misfit] = []
    for misfit in misfits:
        safe = safe_engines(misfit.node, here)
        by_rule = asked is None and misfit.kind is _Kind.SATURATES and EXACT_ENGINE in safe
        if by_rule or (way is OnMismatch.FALLBACK and safe):
            target = EXACT_ENGINE if EXACT_ENGINE in safe else safe[0]
            moved[misfit.node.name] = Placed(target, f"instead of {misfit.record.name}: {misfit.why}")
        elif way is OnMismatch.WARN and misfit.kind is _Kind.SATURATES:
            moved[misfit.node.name] = Placed(str(misfit.record.engine), "on_mismatch is warn", misfit.why)
        else:
            left.append(misfit)
    return moved, left


def _warning(misfits: Sequence[_Misfit], moved: Mapping[str, Placed]) -> str:
    """Return one text of all nodes that do not run where they were made or asked to run, or run wrong there."""
    groups: dict[tuple[str, str], list[str]] = {}
    for misfit in misfits:
        placed = moved[misfit.node.name]
        outcome = f"instead of {misfit.record.name}: {misfit.why}"
        if placed.wrong:
            outcome = f"as asked, and the numbers may be wrong: {placed.wrong}"
        groups.setdefault((placed.engine, outcome), []).append(misfit.node.label)
    return "; ".join(f"{engine} runs {few(names)} {outcome}" for (engine, outcome), names in groups.items())


def _refusal(left: Sequence[_Misfit], stamp: Stamp, here: Here) -> MismatchError | MissingEngineError | UsageError:
    """Return the error of the nodes that are left; a missing engine before all else, as nothing can run without."""
    missing = [misfit for misfit in left if misfit.kind is _Kind.MISSING]
    if missing:
        return _missing(missing[0].record, here)
    first = left[0]
    same = [misfit for misfit in left if (misfit.kind, misfit.why) == (first.kind, first.why)]
    names, engine = [misfit.node.label for misfit in same], first.record.name
    if first.kind is _Kind.NO_KERNEL:
        return MismatchError(
            f"{few(names)} cannot run on {engine}: {first.why}. Run on another engine, let only these nodes do so "
            f"(--on-mismatch fallback; in Python on_mismatch='fallback'), or prepare the model for {engine}"
        )
    return MismatchError(
        f"{few(names)} would saturate without a message: they were made for {_made_for(stamp)}, and "
        f"{engine} on this CPU ({here.host.isa_of(engine)}) adds products in int16. Run on qnnpack (--engine qnnpack; "
        f"in Python engine='qnnpack'), let only these nodes do so (--on-mismatch fallback; in Python "
        f"on_mismatch='fallback'), or prepare the model again with target.backend: {engine} and target.isa: any"
    )


def _check_is_here(record: Backend, here: Here) -> None:
    if record.engine not in here.engines:
        error = _missing(record, here)
        raise error


def _missing(record: Backend, here: Here) -> MissingEngineError | UsageError:
    if record.engine is None:
        return UsageError(
            f"the model was made for {record.name}, which runs in {record.runtime}, not in torch: name an engine "
            f"(--engine; in Python engine=), or export the model"
        )
    there = f"this torch has: {', '.join(here.engines)}" if here.engines else "this torch has none"
    advice = (
        "Choose one of them (--engine; in Python engine=), let qtool do so (--on-mismatch fallback; in Python "
        f"on_mismatch='fallback'), or run this where {record.engine} is"
        if here.engines
        else f"So --engine offers no other: install a torch built with engines, or run this where {record.engine} is"
    )
    return MissingEngineError(
        f"engine {record.engine!r} is not available here; {there}. {advice} (see `qtool backends`)"
    )


def few(names: Sequence[str], limit: int = 5) -> str:
    """Return names for a message, the first of many.

    Example:
        >>> few(["a", "b", "c"], limit=2)
        'a, b and 1 more nodes'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more nodes"


def _made_for(stamp: Stamp) -> str:
    return f"{', '.join(stamp.backends)} with isa {stamp.isa}"
