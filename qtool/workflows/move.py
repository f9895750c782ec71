"""Move: a converted model to another backend, with every code, scale and range as it is.

What a backend needs of a model is in its stamp, so whether the same program is right elsewhere can be answered without
data. Where it is not, the model must be quantized again, from its prepared file.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends.faults import conv_fault
from qtool.backends.ranges import would_saturate
from qtool.backends.record import Support
from qtool.backends.target import backends_of, target, target_name
from qtool.errors import MismatchError
from qtool.passes.match import conv_geometry
from qtool.passes.ops import PATTERNS
from qtool.passes.to_reference import NODE_STAMP
from qtool.types import CONVOLUTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from qtool.backends.record import Backend
    from qtool.runtime.converted import ConvertedModel
    from qtool.stamp.schema import NodeStamp
    from qtool.types import Isa

SHOWN = 5
"""Nodes named in a message."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A model made for other backends, and what to know of it.

    Attributes:
        model: the model; codes, scales and ranges are those it had.
        before: the backends it was made for.
        after: the backends it is made for.
        num_nodes: int8 nodes that now name the other backends.
        reduced_in_vain: nodes whose input keeps 7 bits although no kernel of the new backends needs that: accuracy
            left on the table.
    """

    model: ConvertedModel
    before: tuple[str, ...]
    after: tuple[str, ...]
    num_nodes: int
    reduced_in_vain: tuple[str, ...]


def move(converted: ConvertedModel, backend: str) -> Moved:
    """Return the same int8 program made for another backend.

    Args:
        converted: the model; it is left as it was.
        backend: name of the backend, several joined by commas, or `portable`.

    Raises:
        UsageError: a backend is not known.
        MismatchError: the program would be wrong there, or has an op that there is no kernel for; the nodes are named.

    Example:
        >>> moved = move(qtool.convert(prepared_for_fbgemm), "qnnpack")
        >>> moved.before, moved.after, len(moved.reduced_in_vain) == moved.num_nodes
        (('fbgemm',), ('qnnpack',), True)
    """
    after, before = backends_of(backend), converted.plan.backends
    record = target(after)
    nodes, isa = converted.stamp.int8_nodes(), converted.plan.isa
    blockers = {node.name: why for node in nodes if (why := _blocker(node, record, isa))}
    blockers |= {name: why for name, why in _faults(converted, record) if name not in blockers}
    if blockers:
        raise MismatchError(_refusal(blockers, target_name(after)))
    reduced = [node.name for node in nodes if node.reduce_range and not _saturates(node, record, isa)]
    return Moved(
        model=_made_for(converted, after),
        before=before,
        after=after,
        num_nodes=len(nodes),
        reduced_in_vain=tuple(reduced),
    )


def left_on_the_table(moved: Moved) -> str:
    """Return what to say of nodes that keep a reduced range in vain.

    Example:
        "17 nodes keep 7-bit inputs, first 'features.0', that qnnpack does not need: accuracy is left on the table; ..."
    """
    first, name = moved.reduced_in_vain[0], target_name(moved.after)
    return (
        f"{len(moved.reduced_in_vain)} nodes keep 7-bit inputs, first {first!r}, that {name} does not need: accuracy "
        f"is left on the table; the prepared file, converted with --backend {name}, would use 8 bits"
    )


def _blocker(node: NodeStamp, record: Backend, isa: Isa) -> str:
    """Return why a node cannot stay as it is on a backend, or an empty string."""
    assert node.op is not None
    rule = record.rule(node.op)
    if rule.support is Support.UNSUPPORTED:
        return f"{record.name} has no int8 {node.op.value}"
    tensors = [*node.inputs, *([node.output] if node.output else [])]
    other = next((tensor.dtype for tensor in tensors if tensor.dtype is not record.activation_dtype), None)
    if other:
        return f"its codes are {other.value}, and {record.name} takes {record.activation_dtype.value}"
    if node.weight is not None and node.weight.granularity not in rule.granularities:
        return f"its weight has a scale per {node.weight.granularity.value}, which {record.name} cannot do"
    if node.requires_full_range and _saturates(node, record, isa):
        used = node.inputs[0]
        return f"input codes {used.qmin}..{used.qmax} can saturate there, so its range must be calibrated again"
    return ""


def _saturates(node: NodeStamp, record: Backend, isa: Isa) -> bool:
    assert node.op is not None
    return would_saturate(record, isa, node.op, depthwise=node.depthwise, channel_multiplier=node.channel_multiplier)


def _faults(converted: ConvertedModel, record: Backend) -> Iterator[tuple[str, str]]:
    """Yield the convolutions that the backend's kernel must never be given, each with the reason."""
    for node in converted.exported.graph.nodes:
        op = PATTERNS.get(node.target)
        if op in CONVOLUTIONS and "node" in _stamp_of(node):
            why = conv_fault(record, op, node.args[1].meta["val"].shape, conv_geometry(node).groups)
            if why:
                yield _stamp_of(node)["node"], why


def _stamp_of(node: Node) -> dict[str, str]:
    stamp: dict[str, str] = node.meta.get("custom", {}).get(NODE_STAMP, {})
    return stamp


def _refusal(blockers: dict[str, str], name: str) -> str:
    shown = "; ".join(f"{node!r}: {why}" for node, why in list(blockers.items())[:SHOWN])
    more = f"; and {len(blockers) - SHOWN} more" if len(blockers) > SHOWN else ""
    return (
        f"{len(blockers)} nodes are not right on {name} as they are: {shown}{more}. Convert the prepared file for it: "
        f"qtool convert PREPARED --backend {name}"
    )


def _made_for(converted: ConvertedModel, backends: tuple[str, ...]) -> ConvertedModel:
    moved = copy.deepcopy(converted)
    own, other = target_name(converted.plan.backends), target_name(backends)
    old, new = f"{own} has an int8", f"{other} has an int8"
    moved.plan = dataclasses.replace(
        moved.plan,
        backends=backends,
        nodes=tuple(dataclasses.replace(node, reason=node.reason.replace(old, new)) for node in moved.plan.nodes),
        costs=(),
    )
    moved.stamp = dataclasses.replace(
        moved.stamp,
        backends=backends,
        nodes=tuple(
            dataclasses.replace(node, backends=backends, reason=node.reason.replace(old, new))
            for node in moved.stamp.nodes
        ),
    )
    for graph in (moved.exported.graph, moved.body.graph):
        for node in graph.nodes:
            if "backend" in _stamp_of(node):
                node.meta["custom"] = {NODE_STAMP: {**_stamp_of(node), "backend": ",".join(backends)}}
    return moved
