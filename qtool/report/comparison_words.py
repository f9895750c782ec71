"""What every form of a comparison says, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.inspection.compare import Sameness
from qtool.report.node_words import compute_words, pattern_words
from qtool.report.quantities import count_words
from qtool.report.untrusted import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.inspection.compare import Change, Comparison, Value
    from qtool.inspection.nodes import NodeReport

_MAX_VALUE = 80


def sameness_words(comparison: Comparison) -> str:
    """Return the comparison in one sentence without its first word."""
    if comparison.is_same_content:
        return "the same bytes"
    if comparison.sameness is Sameness.EQUAL:
        return f"{count_words(comparison.num_same, 'node')} and all stored numbers are the same"
    if comparison.sameness is Sameness.UNKNOWN:
        return "nothing differs in what could be compared, and not all could be"
    facts = sum(change.matters for change in comparison.facts)
    counts = [
        (len(comparison.changed), "changed", "node"),
        (len(comparison.added), "added", "node"),
        (len(comparison.removed), "removed", "node"),
        (facts, "changed", "fact"),
        (len(comparison.tensors), "changed", "other tensor"),
        (len(comparison.came), "came", "finding"),
        (len(comparison.went), "went", "finding"),
    ]
    return ", ".join(f"{count_words(count, noun)} {verb}" for count, verb, noun in counts if count)


def value_words(value: Value) -> str:
    """Return one side of a change."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shortened(str(value), _MAX_VALUE)


def change_rows(changes: Sequence[Change]) -> list[tuple[str, str, str]]:
    """Return (what, before, after) of each change."""
    return [
        (shortened(change.what, _MAX_VALUE), value_words(change.before), value_words(change.after))
        for change in changes
    ]


def node_line(node: NodeReport) -> str:
    """Return a node that only one file has, in a few words."""
    return f"{compute_words(node)} {pattern_words(node)}"
