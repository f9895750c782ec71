"""Compares two reports: nodes that came, went or changed, facts of the files, findings that came and went."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from qtool.inspection.stored_numbers import StoredNumbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qtool.inspection.codes import Finding
    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import Histogram, NodeReport, TensorReport

Value = str | int | float | bool | None

_LARGEST_FLOAT32: Final = 3.4028234663852886e38
NOT_COMPARED: Final = StoredNumbers()


class Sameness(StrEnum):
    """A comparison in one word. UNKNOWN: nothing differs in what could be compared, and something could not."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One fact that differs.

    Attributes:
        what: the fact, for example `weight scale`; a dtype in it is untrusted text.
        before: what the first file says; None if nothing. Untrusted text.
        after: what the second says.
        matters: it makes the files different; else they are only different forms of the same model.
    """

    what: str
    before: Value
    after: Value
    matters: bool = True


@dataclass(frozen=True, kw_only=True)
class NodeChange:
    """A node of both files, and what differs in it.

    Attributes:
        name: the node; untrusted text.
        changes: what differs.
    """

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs between two files.

    Attributes:
        first: the report on the first.
        second: the report on the second.
        is_same_content: their bytes are the same.
        facts: facts of the whole files that differ.
        added: nodes that only the second has.
        removed: nodes that only the first has.
        changed: nodes of both that differ, in the order of the first.
        num_same: nodes of both in which nothing differs.
        tensors: stored tensors of no node that both have, with other numbers in them; untrusted text.
        came: findings that only the second has.
        went: findings that only the first has.
        not_compared: what could not be compared, a line each; untrusted text.
    """

    first: Report
    second: Report
    is_same_content: bool
    facts: tuple[Change, ...]
    added: tuple[NodeReport, ...]
    removed: tuple[NodeReport, ...]
    changed: tuple[NodeChange, ...]
    num_same: int
    tensors: tuple[str, ...]
    came: tuple[Finding, ...]
    went: tuple[Finding, ...]
    not_compared: tuple[str, ...]

    @property
    def sameness(self) -> Sameness:
        """The comparison in one word."""
        if self.is_same_content:
            return Sameness.EQUAL
        matters = any(change.matters for change in self.facts)
        if matters or self.added or self.removed or self.changed or self.tensors or self.came or self.went:
            return Sameness.DIFFERENT
        return Sameness.UNKNOWN if self.not_compared else Sameness.EQUAL


def compared(
    first: Report, second: Report, *, numbers: StoredNumbers = NOT_COMPARED, is_same_content: bool = False
) -> Comparison:
    """Return what differs between two files.

    Args:
        first: the report on the first.
        second: the report on the second, asked for the same target.
        numbers: what they store differently.
        is_same_content: their bytes are the same.

    Example:
        >>> comparison = compared(inspect_file(a), inspect_file(b))
        >>> comparison.sameness.value, comparison.changed[0].changes[0].what
        ('different', 'input range')
    """
    ours, theirs = _by_name(first.nodes), _by_name(second.nodes)
    both = [key for key in ours if key in theirs]
    stored: dict[str, list[Change]] = {}
    for node, what in numbers.different:
        stored.setdefault(node, []).append(Change(what=what, before="as stored", after="other numbers"))
    changed = []
    for key in both:
        changes = (*_node_changes(ours[key], theirs[key]), *stored.pop(key[0], ()))
        changed += [NodeChange(name=key[0], changes=changes)] if changes else []
    return Comparison(
        first=first,
        second=second,
        is_same_content=is_same_content,
        facts=tuple(_facts(first, second)),
        added=tuple(theirs[key] for key in theirs if key not in ours),
        removed=tuple(ours[key] for key in ours if key not in theirs),
        changed=tuple(changed),
        num_same=len(both) - len(changed),
        tensors=tuple(what for node, what in numbers.different if not node),
        came=_only(second.findings, first.findings),
        went=_only(first.findings, second.findings),
        not_compared=tuple(_not_compared(first, second, numbers)),
    )


def _by_name(nodes: Sequence[NodeReport]) -> dict[tuple[str, int], NodeReport]:
    """Return nodes by name; of those that share one, by which of them it is."""
    found: dict[tuple[str, int], NodeReport] = {}
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.name] = counts.get(node.name, 0) + 1
        found[node.name, counts[node.name]] = node
    return found


def _node_changes(one: NodeReport, other: NodeReport) -> Iterator[Change]:
    yield from _changes(_node_facts(one), _node_facts(other))
    ours, theirs = _tensors(one), _tensors(other)
    for role in dict.fromkeys([*ours, *theirs]):
        # A value that only one file tells of is no change of the model: formats differ in what they say.
        if role in ours and role in theirs:
            found = _changes(_tensor_facts(ours[role]), _tensor_facts(theirs[role]))
            for change in found:
                yield Change(what=f"{role} {change.what}", before=change.before, after=change.after)
        elif role == "weight":
            yield Change(
                what=role, before="stored" if role in ours else None, after="stored" if role in theirs else None
            )


def _node_facts(node: NodeReport) -> dict[str, Value]:
    facts: dict[str, Value] = {
        "op": node.op.value if node.op else node.target,
        "compute": node.compute.value,
        "activation": node.activation,
        "backends": ", ".join(node.backends),
        "reduced range": node.reduce_range,
        "depthwise": node.depthwise,
        "groups": node.groups,
        "why": node.why if not node.is_quantized else "",
    }
    return facts | {f"worst pair sum, {each.pairing.value}": each.worst_pair_sum for each in node.bounds}


def _tensors(node: NodeReport) -> dict[str, TensorReport]:
    found: dict[str, TensorReport] = {}
    counts: dict[str, int] = {}
    for tensor in node.tensors:
        counts[tensor.role] = counts.get(tensor.role, 0) + 1
        nth = "" if counts[tensor.role] == 1 else f" {counts[tensor.role]}"
        found[f"{tensor.role.value}{nth}"] = tensor
    return found


def _tensor_facts(tensor: TensorReport) -> dict[str, Value]:
    return {
        "dtype": tensor.dtype,
        "shape": None if tensor.shape is None else " x ".join(map(str, tensor.shape)),
        "bytes": tensor.num_bytes,
        "range": _span(tensor.qmin, tensor.qmax),
        "granularity": tensor.granularity if tensor.is_quantized else None,
        "axis": tensor.axis,
        "group size": tensor.group_size,
        "scale": _span(tensor.scale_min, tensor.scale_max),
        "zero point": _span(tensor.zero_point_min, tensor.zero_point_max),
        "codes seen": _span(tensor.seen_min, tensor.seen_max),
        "histogram": _histogram_words(tensor.values),
        "scale histogram": _histogram_words(tensor.scales),
    }


def _span(low: float | None, high: float | None) -> str | None:
    if low is None or high is None:
        return None
    return _number_words(low) if low == high else f"{_number_words(low)}..{_number_words(high)}"


def _number_words(value: float) -> str:
    """Return a number so that no other is written like it: 9 digits tell any two float32 apart, 17 any two float64."""
    if isinstance(value, int) or not math.isfinite(value) or abs(value) > _LARGEST_FLOAT32:
        return repr(value)
    is_float32 = struct.unpack("<f", struct.pack("<f", value))[0] == value
    return f"{value:.9g}" if is_float32 else repr(value)


def _histogram_words(found: Histogram | None) -> str | None:
    """Return what tells histograms apart, short enough to be read."""
    if found is None:
        return None
    counts = " ".join(map(str, found.counts))
    return f"{sum(found.counts)} values in {found.low:.9g}..{found.high:.9g}, crc {zlib.crc32(counts.encode()):08x}"


def _changes(ours: dict[str, Value], theirs: dict[str, Value]) -> Iterator[Change]:
    for what in dict.fromkeys([*ours, *theirs]):
        before, after = ours.get(what), theirs.get(what)
        if before != after and not (_is_nan(before) and _is_nan(after)):
            yield Change(what=what, before=before, after=after)


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _facts(first: Report, second: Report) -> Iterator[Change]:
    yield from _changes(_facts_that_matter(first), _facts_that_matter(second))
    for change in _changes(_facts_of_form(first), _facts_of_form(second)):
        yield Change(what=change.what, before=change.before, after=change.after, matters=False)


def _facts_that_matter(report: Report) -> dict[str, Value]:
    stamp = report.stamp
    inputs = "; ".join(f"{each.name} {each.dtype} {list(each.shape)}" for each in stamp.inputs) if stamp else None
    return {
        "outcome": report.outcome.value,
        "backends": ", ".join(stamp.backends) if stamp else None,
        "isa": stamp.isa.value if stamp else None,
        "inputs": inputs,
        "preprocessing": str(stamp.preprocessing) if stamp else None,
        **{f"bytes of {dtype}": count for dtype, count in report.bytes_by_dtype},
    }


def _facts_of_form(report: Report) -> dict[str, Value]:
    return {
        "kind": report.kind.value,
        "form": report.form,
        "producer": report.producer,
        "stage": report.stamp.stage.value if report.stamp else None,
        "size": report.num_bytes,
        "tensors": report.num_tensors,
        "wasted bytes": sum(each.wasted_bytes for each in report.duplicates),
    }


def _only(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    known = {(other.code, other.node) for other in others}
    return tuple(finding for finding in findings if (finding.code, finding.node) not in known)


def _not_compared(first: Report, second: Report, numbers: StoredNumbers) -> Iterator[str]:
    if not first.nodes and not second.nodes:
        yield "neither file has nodes that are known"
    elif not numbers.num_same and not numbers.different:
        yield "the stored numbers: no tensor of one is known in the other"
    for node, what in numbers.unknown:
        yield f"{node + ': ' if node else ''}{what}"
    for line in dict.fromkeys([*first.not_understood, *second.not_understood]):
        yield f"not understood: {line}"
