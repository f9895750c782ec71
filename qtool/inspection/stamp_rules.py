"""Rules on a node that both the stamp and the file tell of: what the stamp says must be so.

A digest finds a file that was changed; it does not find a stamp that was written to fit the change. So what can be
worked out from the file is compared with what the stamp says of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.inspection import codes
from qtool.readers.facts import Compute, Role
from qtool.types import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.inspection.codes import Finding
    from qtool.inspection.joined import JoinedNode
    from qtool.inspection.nodes import NodeReport, TensorReport
    from qtool.stamp.schema import NodeStamp, TensorStamp

_FLOAT = (Compute.FLOAT, Compute.FAKE_QUANTIZED)
_CODES = (Compute.STATIC, Compute.DYNAMIC)


def computes_otherwise(node: JoinedNode) -> Iterator[Finding]:
    """Yield a node that is another op than the stamp says, or computes in float where it says int8."""
    stamped, read = node.stamped, node.read
    if stamped is None or read is None:
        return
    if stamped.op is not None and read.op is not None and _kernel(stamped.op) != _kernel(read.op):
        yield _finding(node, f"it is stamped as {stamped.op.value}, and is {read.op.value}")
    if node.report.compute is Compute.STATIC and read.compute in _FLOAT:
        yield _finding(node, "it is stamped as int8, and computes in float")
    if node.report.compute is Compute.FLOAT and read.compute in _CODES:
        yield _finding(node, "it is stamped as float, and computes on codes")


def _kernel(op: Op) -> str:
    """Return the kind of kernel that an op has; a graph may spell an average pooling as a mean."""
    if op in TRANSPOSED_CONVOLUTIONS:
        return "transposed convolution"
    if op in CONVOLUTIONS:
        return "convolution"
    return "linear" if op is Op.LINEAR else "other"


def other_numbers(node: JoinedNode) -> Iterator[Finding]:
    """Yield tensors whose codes, scales or zero points are not the stamped ones."""
    if node.stamped is None or node.read is None:
        return
    for said, found in _tensors(node.stamped, node.read):
        if said.dtype.value != found.dtype:
            yield _finding(node, f"{said.edge} is stamped as {said.dtype.value}, and is {found.dtype}")
        low, high = (said.qmin if end is None else end for end in (found.seen_min, found.seen_max))
        if low < said.qmin or high > said.qmax:
            yield _finding(node, f"{said.edge} is stamped as {said.qmin}..{said.qmax}, and has codes {low}..{high}")
        if None not in (said.digest, found.digest) and said.digest != found.digest:
            yield _finding(node, f"scales or zero points of {said.edge} are not the stamped ones")


def wider_range(node: JoinedNode) -> Iterator[Finding]:
    """Yield a node whose input can have codes that the stamp excludes."""
    if node.stamped is None or not node.stamped.multiplies_codes or not node.report.multiplies_codes:
        return
    said, found = node.stamped.inputs[0], node.report.layer
    if found.a_lo < said.qmin or found.a_hi > said.qmax:
        span = f"{found.a_lo}..{found.a_hi}"
        yield _finding(node, f"its input's codes are stamped as {said.qmin}..{said.qmax}, and can be {span}")


def other_sums(node: JoinedNode) -> Iterator[Finding]:
    """Yield a node whose weights reach other sums than its stamp says."""
    if node.stamped is None or node.stamped.saturation is None or any(wider_range(node)):
        return
    proved = {bound.pairing: bound for bound in node.report.bounds}
    for said in node.stamped.saturation.known_bounds:
        found = proved.get(said.pairing, said)
        if found != said:
            stamped, real = (f"{each.worst_pair_sum} ({each.num_channels} channels)" for each in (said, found))
            yield _finding(node, f"pair sums ({said.pairing.value}) are stamped as {stamped}, and reach {real}")


def _tensors(stamped: NodeStamp, read: NodeReport) -> Iterator[tuple[TensorStamp, TensorReport]]:
    """Yield each quantized tensor that both tell of."""
    said = {
        Role.INPUT: stamped.inputs,
        Role.WEIGHT: () if stamped.weight is None else (stamped.weight,),
        Role.OUTPUT: () if stamped.output is None else (stamped.output,),
    }
    for role, stamps in said.items():
        found = [tensor for tensor in read.tensors if tensor.role is role]
        yield from ((one, other) for one, other in zip(stamps, found, strict=False) if other.is_quantized)


def _finding(node: JoinedNode, message: str) -> Finding:
    return codes.CONTRADICTS.finding(message, node=node.report.name)


STAMP_RULES: tuple[Callable[[JoinedNode], Iterator[Finding]], ...] = (
    computes_otherwise,
    other_numbers,
    wider_range,
    other_sums,
)
