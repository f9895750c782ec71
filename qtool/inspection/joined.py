"""Joins what a stamp says of the nodes with what a reader found of them in the file, node by node, by name.

Numbers that both have are the file's; that the stamp says others is a finding (`qtool.inspection.stamp_rules`).
What a target needs to be right (backends, ranges) only the stamp can say.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.inspection.nodes import NodeReport, Origin, TensorReport
from qtool.readers.facts import Compute, FileKind, Role
from qtool.types import CONVOLUTIONS, MAC_OPS, TRANSPOSED_CONVOLUTIONS, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from qtool.inspection.nodes import Measured
    from qtool.readers.facts import FileFacts, ModelFacts, Node
    from qtool.stamp.schema import NodeStamp, Stamp, TensorStamp

    Measure = Callable[[Node, tuple[int, int] | None], Measured]

_TRAINABLE: Final = (Stage.PREPARED, Stage.TRAINED)
"""Stages whose nodes compute in float on rounded values, and multiply codes once they are converted."""

_ON_CODES: Final = (Compute.STATIC, Compute.DYNAMIC)
_STATES_RANGES: Final = (FileKind.PT2, FileKind.ONNX)
"""Kinds of files whose graphs state the codes of every activation; what others clip stands in code."""

_REDUCED: Final = {
    ("uint8", 0, 127): True,
    ("uint8", 0, 255): False,
    ("int8", -64, 63): True,
    ("int8", -128, 127): False,
}


@dataclass(frozen=True, kw_only=True)
class JoinedNode:
    """One node, with both its sides.

    Attributes:
        report: what is known of it.
        stamped: what the stamp says of it; None if it does not name it.
        read: what the file alone says of it; None if its reader did not find it there.
    """

    report: NodeReport
    stamped: NodeStamp | None = None
    read: NodeReport | None = None


def joined_nodes(stamp: Stamp | None, file: FileFacts, measure: Measure) -> tuple[JoinedNode, ...]:
    """Return each node of a file: the stamp's in its order, then those that the file alone has.

    Args:
        stamp: what the file says about itself.
        file: what was read of it.
        measure: finds the numbers of a node; takes the node and the ends of its input's codes, if they are known.
    """
    states_ranges = file.kind in _STATES_RANGES
    return tuple(
        _joined(stamped, found, stamp, measure, states_ranges=states_ranges) for stamped, found in _pairs(stamp, file)
    )


def _pairs(stamp: Stamp | None, file: FileFacts) -> Iterator[tuple[NodeStamp | None, Node | None]]:
    """Yield each node as the stamp and as the file has it; one of the two may be missing."""
    found = {node.name: node for node in reversed(file.model.nodes)}  # of two with one name the first
    joined = [(node, found.get(node.name)) for node in (stamp.nodes if stamp else ())]
    if file.stamp is None:
        joined = _joined_in_order(joined, file.model)
    yield from joined
    taken = {id(node) for _, node in joined if node is not None}
    yield from ((None, node) for node in file.model.nodes if id(node) not in taken)


def _joined_in_order(
    joined: Sequence[tuple[NodeStamp, Node | None]], model: ModelFacts
) -> list[tuple[NodeStamp, Node | None]]:
    """Return the pairs with those too that a model which was wrapped has under other names.

    Marks stand in the graph beside their nodes, so both lists of what multiplies codes are in one order; they are
    joined only if all ops in it are the same.
    """
    taken = {id(node) for _, node in joined if node is not None}
    left = [node for node in model.nodes if node.op in MAC_OPS and node.compute in _ON_CODES and id(node) not in taken]
    open_stamps = [stamped for stamped, node in joined if node is None and stamped.multiplies_codes]
    if [stamped.op for stamped in open_stamps] != [node.op for node in left]:
        return list(joined)
    given = dict(zip([stamped.name for stamped in open_stamps], left, strict=True))
    return [(stamped, node or given.get(stamped.name)) for stamped, node in joined]


def _joined(
    stamped: NodeStamp | None, found: Node | None, stamp: Stamp | None, measure: Measure, *, states_ranges: bool
) -> JoinedNode:
    said = None if stamped is None or stamp is None else stamped_node(stamped, stamp.stage)
    if said is None:
        assert found is not None, "a pair has a node"
        read = found_node(found, measure(found, _ends(found)))
        return JoinedNode(report=read, read=read)
    if found is None:
        return JoinedNode(report=said, stamped=stamped)
    ends = _wider(said, found if states_ranges else None)
    read = found_node(found, measure(found, ends))
    report = dataclasses.replace(
        said,
        groups=read.groups,
        packed_class=read.packed_class,
        tensors=_joined_tensors(said, read, ends),
        bounds=read.bounds or said.bounds,
        bounds_origin=read.bounds_origin if read.bounds else said.bounds_origin,
        reads=read.reads,
        why=said.why or read.why,
    )
    return JoinedNode(report=report, stamped=stamped, read=read)


def _ends(node: Node) -> tuple[int, int] | None:
    """Return the ends of the codes that a node's input can have, where its kernel multiplies codes."""
    read = node.operand(Role.INPUT)
    codes = None if read is None or node.compute not in _ON_CODES else read.quantization
    return None if codes is None else (codes.qmin, codes.qmax)


def _wider(said: NodeReport, found: Node | None) -> tuple[int, int] | None:
    """Return the ends that a stamp states, or that the file has where it states wider ones."""
    if not said.multiplies_codes:
        return None
    low, high = said.layer.a_lo, said.layer.a_hi
    own = _ends(found) if found is not None else None
    return (low, high) if own is None else (min(low, own[0]), max(high, own[1]))


def _joined_tensors(said: NodeReport, read: NodeReport, ends: tuple[int, int] | None) -> tuple[TensorReport, ...]:
    """Return the tensors of both: in the file's shape and numbers, and with the stamp's codes and names."""
    tensors = []
    for role in Role:
        stamped, found = ([each for each in node.tensors if each.role is role] for node in (said, read))
        tensors += [_joined_tensor(mine, its) for mine, its in zip(stamped, found, strict=False)]
        tensors += stamped[len(found) :] or found[len(stamped) :]
    first = next((place for place, tensor in enumerate(tensors) if tensor.role is Role.INPUT), None)
    if ends is not None and first is not None:
        tensors[first] = dataclasses.replace(tensors[first], qmin=ends[0], qmax=ends[1])
    return tuple(tensors)


def _joined_tensor(said: TensorReport, read: TensorReport) -> TensorReport:
    if not read.num_scales:
        return dataclasses.replace(
            said, shape=read.shape, num_bytes=read.num_bytes, values=read.values, faults=read.faults
        )
    return dataclasses.replace(read, name=said.name, dtype=said.dtype, qmin=said.qmin, qmax=said.qmax)


def stamped_node(node: NodeStamp, stage: Stage) -> NodeReport:
    """Return what a stamp alone says of a node."""
    tensors = [_stamped_tensor(Role.INPUT, each) for each in node.inputs]
    tensors += [] if node.weight is None else [_stamped_tensor(Role.WEIGHT, node.weight)]
    tensors += [] if node.output is None else [_stamped_tensor(Role.OUTPUT, node.output)]
    bounds = () if node.saturation is None else node.saturation.known_bounds
    is_float = node.verdict is Verdict.FLOAT
    runs_in = Compute.FAKE_QUANTIZED if stage in _TRAINABLE else Compute.STATIC
    return NodeReport(
        name=node.name,
        op=node.op,
        target=node.target,
        compute=Compute.FLOAT if is_float else runs_in,
        origin=Origin.STAMPED,
        backends=node.backends,
        reduce_range=node.reduce_range,
        reduce_range_origin=Origin.STAMPED,
        activation=node.activation,
        depthwise=node.depthwise,
        channel_multiplier=node.channel_multiplier,
        requires_full_range=node.requires_full_range,
        tensors=tuple(tensors),
        bounds=bounds,
        bounds_origin=Origin.STAMPED if bounds else Origin.UNKNOWN,
        why=node.reason if is_float else "",
    )


def _stamped_tensor(role: Role, stamp: TensorStamp) -> TensorReport:
    return TensorReport(
        role=role,
        name=stamp.edge,
        dtype=stamp.dtype.value,
        qmin=stamp.qmin,
        qmax=stamp.qmax,
        axis=stamp.axis,
        num_scales=1 if stamp.axis is None and stamp.is_calibrated else 0,
        scale_min=stamp.scale_min,
        scale_max=stamp.scale_max,
        zero_point_min=stamp.zero_point_min,
        zero_point_max=stamp.zero_point_max,
    )


def found_node(node: Node, measured: Measured) -> NodeReport:
    """Return what the file says of a node, without a stamp: its target is unknown."""
    reduced = _reduced(node)
    depthwise, multiplier = _depthwise(node)
    return NodeReport(
        name=node.name,
        op=node.op,
        target=node.target,
        compute=node.compute,
        origin=Origin.UNKNOWN,
        reduce_range=reduced,
        reduce_range_origin=Origin.UNKNOWN if reduced is None else Origin.DERIVED,
        activation=node.activation,
        depthwise=depthwise,
        channel_multiplier=multiplier,
        groups=node.groups,
        packed_class=node.packed_class,
        tensors=measured.tensors,
        bounds=measured.bounds,
        bounds_origin=Origin.DERIVED if measured.bounds else Origin.UNKNOWN,
        reads=node.reads,
        why=node.note or ("stored in float" if node.compute is Compute.FLOAT else ""),
    )


def _reduced(node: Node) -> bool | None:
    """Return whether its input is in a reduced range, as its codes tell; None where they are not known."""
    read = node.operand(Role.INPUT)
    codes = None if read is None else read.quantization
    return None if codes is None else _REDUCED.get((codes.dtype, codes.qmin, codes.qmax))


def _depthwise(node: Node) -> tuple[bool, int | None]:
    """Return whether each group has one input channel, and how many output channels it then has.

    Where that cannot be told it may be one, for whose kernel the same bounds hold or worse ones.
    """
    if node.op not in CONVOLUTIONS:
        return False, None
    weight = node.operand(Role.WEIGHT)
    shape = weight.tensor.shape if weight and weight.tensor else ()
    if node.groups is None or node.groups < 1 or len(shape) < 2:
        return node.groups != 1, None
    outputs_first = node.op not in TRANSPOSED_CONVOLUTIONS
    num_inputs = shape[1] if outputs_first else shape[0] // node.groups
    if node.groups == 1 or num_inputs != 1:
        return False, None
    return True, shape[0] // node.groups if outputs_first else shape[1]
