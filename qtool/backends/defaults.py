"""The ranges each op gets on a backend when the config says nothing, as a table for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends.ranges import Consumer, activation_spec, weight_spec
from qtool.backends.record import Support
from qtool.types import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.backends.record import Backend
    from qtool.types import Isa, Op, Spec


@dataclass(frozen=True, kw_only=True)
class DefaultRow:
    """How one tensor of one op is quantized by default.

    Attributes:
        op: the op pattern; `depthwise conv2d` for the depthwise kernel.
        role: `input` or `weight`.
        spec: how it is quantized; None where the op runs in float.
    """

    op: str
    role: str
    spec: Spec | None


def default_rows(backend: Backend, isa: Isa) -> tuple[DefaultRow, ...]:
    """Return the default ranges of every op on a backend, for models made for that CPU."""
    return tuple(row for rule in backend.rules for row in _rows(backend, isa, rule.op))


def _rows(backend: Backend, isa: Isa, op: Op) -> Iterator[DefaultRow]:
    rule = backend.rule(op)
    if rule.support is Support.UNSUPPORTED:
        yield DefaultRow(op=op.value, role="input", spec=None)
        return
    for name, depthwise in _kernels(op):
        reader = Consumer(node=name, op=op, depthwise=depthwise, channel_multiplier=1 if depthwise else None)
        yield DefaultRow(op=name, role="input", spec=activation_spec(backend, isa, [reader], observer="auto"))
        if rule.granularities:
            weight = weight_spec(
                backend, op, granularity=None, axis=1 if op in TRANSPOSED_CONVOLUTIONS else 0, observer="auto"
            )
            yield DefaultRow(op=name, role="weight", spec=weight)


def _kernels(op: Op) -> tuple[tuple[str, bool], ...]:
    """Return the kernels an op has, each with whether it is the depthwise one."""
    if op in CONVOLUTIONS:
        return ((op.value, False), (f"depthwise {op.value}", True))
    return ((op.value, False),)
