"""A comparison of two files as Markdown for comments of CI systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.inspection.compare import Sameness
from qtool.report.comparison_words import change_rows, node_line, sameness_words
from qtool.report.finding_groups import finding_groups
from qtool.report.markdown import code, findings_parts, within_limit, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.inspection.codes import Finding
    from qtool.inspection.compare import Change, Comparison, NodeChange
    from qtool.inspection.nodes import NodeReport

_MARKS: Final = {Sameness.EQUAL: "🟢", Sameness.DIFFERENT: "🔴", Sameness.UNKNOWN: "🟡"}
_MAX_NODES: Final = 60


def comparison_to_markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown of at most `markdown.MAX_CHARACTERS`."""
    names = f"{code(comparison.first.name)} and {code(comparison.second.name)}"
    mark = _MARKS[comparison.sameness]
    parts = [
        f"### {mark} {comparison.sameness.value}: {names}\n",
        f"{words(sameness_words(comparison))}\n",
        _table([("", change) for change in comparison.facts]) if comparison.facts else "",
        _changed(comparison.changed),
        _nodes("only in the second", comparison.added),
        _nodes("only in the first", comparison.removed),
        *_findings("Findings that came", comparison.came),
        *_findings("Findings that went", comparison.went),
        _folded(
            f"other tensors with other numbers: {len(comparison.tensors)}",
            [f"- {code(name)}" for name in comparison.tensors],
        ),
        _folded("not compared", [f"- {code(line)}" for line in comparison.not_compared]),
    ]
    return within_limit(parts)


def _table(changes: Sequence[tuple[str, Change]]) -> str:
    rows = [
        f"| {code(node) if node else ''} | {words(what)} | {words(before)} | {words(after)} |"
        for node, change in changes
        for what, before, after in change_rows([change])
    ]
    return "\n".join(["| node | what | first | second |", "|---|---|---|---|", *rows, ""])


def _changed(changed: Sequence[NodeChange]) -> str:
    rows = [(node.name, change) for node in changed[:_MAX_NODES] for change in node.changes]
    if not rows:
        return ""
    some = f", {_MAX_NODES} of them here" if len(changed) > _MAX_NODES else ""
    return f"<details open><summary>nodes changed: {len(changed)}{some}</summary>\n\n{_table(rows)}\n</details>\n"


def _nodes(title: str, nodes: Sequence[NodeReport]) -> str:
    return _folded(f"{title}: {len(nodes)}", [f"- {code(node.name)}: {words(node_line(node))}" for node in nodes])


def _findings(title: str, findings: Sequence[Finding]) -> list[str]:
    return [f"**{title}**\n", *findings_parts(finding_groups(findings))] if findings else []


def _folded(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = [f"- and {len(lines) - _MAX_NODES} more"] if len(lines) > _MAX_NODES else []
    body = "\n".join([*lines[:_MAX_NODES], *more])
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>\n"
