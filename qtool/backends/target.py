"""The meet of several backends: one record whose rules hold on each of them.

A model made for the meet is right on every one of its backends: an op runs in int8 where all have it, a weight has the
scales that all can do, an activation gives up its eighth bit where any kernel could saturate.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from qtool.backends.record import Backend, OpRule, Saturates, Support
from qtool.backends.registry import backend as find_backend
from qtool.errors import UsageError
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.types import Granularity

PORTABLE: Final = "portable"
"""The word for all backends that `PORTABLE_BACKENDS` names."""

PORTABLE_BACKENDS: Final = ("fbgemm", "x86", "onednn", "qnnpack", "onnxruntime")
"""Those that take uint8 activations: the engines of torch, and ONNX Runtime. XNNPACK takes int8."""

_WORSE: Final = (Saturates.NEVER, Saturates.WITHOUT_VNNI, Saturates.ALWAYS)


def backends_of(words: str) -> tuple[str, ...]:
    """Return the names that a name, `portable`, or names joined by commas stand for; whether they are known is open.

    Example:
        >>> backends_of("x86"), backends_of("onednn,x86"), len(backends_of("portable"))
        (('x86',), ('onednn', 'x86'), 5)
    """
    return PORTABLE_BACKENDS if words == PORTABLE else tuple(word.strip() for word in words.split(","))


def target_name(names: Sequence[str]) -> str:
    """Return the word for several backends: `portable`, or their names joined by commas."""
    return PORTABLE if tuple(names) == PORTABLE_BACKENDS else ",".join(names)


def target(names: Sequence[str]) -> Backend:
    """Return the backend of that name, or of several the meet.

    Args:
        names: at least one.

    Raises:
        UsageError: one is not known, one stands there twice, or their codes have no dtype in common.

    Example:
        >>> target(("fbgemm", "qnnpack")).rule(Op.CONV2D).saturates.value
        'without_vnni'
        >>> target(("onednn", "qnnpack")).rule(Op.CONV_TRANSPOSE2D).support.value
        'unsupported'
    """
    return _meet(tuple(names))


@cache
def _meet(names: tuple[str, ...]) -> Backend:
    records = tuple(find_backend(name) for name in names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not records:
        found = f"{twice!r} stands there twice" if twice else "found none"
        msg = f"target.backend: {found}; name each backend once"
        raise UsageError(msg)
    first = records[0]
    if len(records) == 1:
        return first
    _check_dtypes(records)
    return Backend(
        name=target_name(names),
        title=f"every one of {', '.join(names)}",
        engine=None,
        runtime="several",
        activation_dtype=first.activation_dtype,
        weight_dtype=first.weight_dtype,
        weight_range=first.weight_range,
        isa=None,  # each backend's own holds: `host.isa_of` is asked for one at a time
        rules=tuple(_rule(op, records) for op in Op),
        source="; ".join(record.source for record in records),
    )


def _check_dtypes(records: Sequence[Backend]) -> None:
    first = records[0]
    for record in records[1:]:
        for role in ("activation_dtype", "weight_dtype", "weight_range"):
            one, other = getattr(first, role), getattr(record, role)
            if one is not other:
                what = role.replace("_", " ")
                msg = (
                    f"no model fits {first.name!r} and {record.name!r} alike: their {what}s are {one.value} and "
                    f"{other.value}. Prepare once for each of them"
                )
                raise UsageError(msg)


def _rule(op: Op, records: Sequence[Backend]) -> OpRule:
    rules = [record.rule(op) for record in records]
    without = [record.name for record, rule in zip(records, rules, strict=True) if rule.support is Support.UNSUPPORTED]
    source = "; ".join(dict.fromkeys(rule.source for rule in rules))
    if without:
        notes = dict.fromkeys(rule.note for rule in rules if rule.support is Support.UNSUPPORTED and rule.note)
        words = f"{', '.join(without)}{': ' if notes else ''}{'; '.join(notes)}"
        return OpRule(op=op, support=Support.UNSUPPORTED, note=words, source=source)
    conditions = dict.fromkeys(
        f"{record.name}: {rule.unless}" for record, rule in zip(records, rules, strict=True) if rule.unless
    )
    return OpRule(
        op=op,
        support=Support.WRONG_UNLESS if conditions else Support.EQUAL,
        unless="; ".join(conditions),
        granularities=_common(op, [rule.granularities for rule in rules], records),
        saturates=max((rule.saturates for rule in rules), key=_WORSE.index),
        depthwise_saturates=max((rule.depthwise_saturates for rule in rules), key=_WORSE.index),
        fused_activations=tuple(
            word for word in rules[0].fused_activations if all(word in rule.fused_activations for rule in rules)
        ),
        shares_input_parameters=any(rule.shares_input_parameters for rule in rules),
        faults=tuple(dict.fromkeys(fault for rule in rules for fault in rule.faults)),
        note="; ".join(dict.fromkeys(rule.note for rule in rules if rule.note)),
        source=source,
    )


def _common(
    op: Op, granularities: Sequence[tuple[Granularity, ...]], records: Sequence[Backend]
) -> tuple[Granularity, ...]:
    common = tuple(each for each in granularities[0] if all(each in others for others in granularities))
    if granularities[0] and not common:
        msg = f"no weight scale of {op.value} is possible on all of {', '.join(record.name for record in records)}"
        raise UsageError(msg)
    return common
