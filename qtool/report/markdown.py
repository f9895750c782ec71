"""The report as Markdown for comments of CI systems: short, with the nodes folded away.

Text from the file cannot become markup, a link, an emoji or a mention: unless it is plain words it stands in code,
where nothing of that is looked for (GitHub Flavored Markdown, sections 6.3 code spans, 4.10 tables, 6.2 entities).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.inspection.codes import Severity
from qtool.inspection.findings import Outcome
from qtool.readers.facts import Role
from qtool.report.chosen_nodes import nodes_that_matter
from qtool.report.finding_groups import finding_groups
from qtool.report.node_words import codes_words, compute_words, note_words, pattern_words, stored_bytes
from qtool.report.quantities import size_words, span_words
from qtool.report.summary import count_line, fact_rows, outcome_words
from qtool.report.untrusted import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport
    from qtool.report.finding_groups import FindingGroup

MAX_CHARACTERS: Final = 60_000
"""GitHub takes 65 536 in a comment."""

_MARKS: Final = {Severity.ERROR: "🔴", Severity.WARNING: "🟡", Severity.INFO: "🔵"}
_MAX_NODES: Final = 100
_MAX_LINES: Final = 10
_MAX_NAMES: Final = 6
_MAX_TEXT: Final = 300
_PLAIN: Final = re.compile(r"(?:[0-9A-Za-z ,.;()'%/+-]|: )*")
_LINKS: Final = re.compile(r"www\.|[A-Za-z]-\d|\b(?=\d*[a-fA-F])[0-9a-fA-F]{7,40}\b|\b[0-9A-Za-z]+/[0-9A-Za-z]")
"""What some system makes a link of: hosts, issues such as GH-1, commits, repositories."""

_NEEDS_ENTITY: Final = re.compile(r"[^0-9A-Za-z ]")


def to_markdown(report: Report) -> str:
    """Return the report as Markdown of at most `MAX_CHARACTERS`."""
    word = report.outcome.value.replace("_", " ")
    mark = "🟢" if report.outcome is Outcome.OK else "🔴" if report.outcome is Outcome.FINDINGS else "🟡"
    found = count_line(report)
    parts = [
        f"### {mark} {word}: {code(report.name)}\n",
        f"{words(outcome_words(report))}{f', {found}' if found else ''}\n",
        facts_table(fact_rows(report)),
        *findings_parts(finding_groups(report.findings)),
        _nodes(report),
    ]
    return within_limit(parts)


def code(text: str) -> str:
    r"""Return text as code, whatever it holds.

    Example:
        >>> code("conv1"), code("a`|b")
        ('`conv1`', '<code>a&#96;&#124;b</code>')
    """
    whole = shortened(text, _MAX_TEXT)
    if whole.strip() and not any(each in whole for each in "`|\\"):
        return f"`{whole}`"
    return f"<code>{_NEEDS_ENTITY.sub(lambda each: f'&#{ord(each.group())};', whole)}</code>"


def words(text: str) -> str:
    """Return text as it is where it is plain words and numbers, else as code.

    Example:
        >>> words("silu has no int8 kernel"), words("see @someone"), words("GH-1")
        ('silu has no int8 kernel', '`see @someone`', '`GH-1`')
    """
    is_plain = _PLAIN.fullmatch(text) and not _LINKS.search(text) and len(text) <= _MAX_TEXT
    return text if is_plain else code(text)


def facts_table(rows: Mapping[str, str]) -> str:
    """Return labels and values as a table."""
    lines = "\n".join(f"| {label} | {words(value)} |" for label, value in rows.items())
    return f"| | |\n|---|---|\n{lines}\n"


def findings_parts(groups: Sequence[FindingGroup]) -> list[str]:
    """Return findings, errors open and the rest folded away."""
    return [_group(group) for group in groups]


def _group(group: FindingGroup) -> str:
    title = f"{_MARKS[group.severity]} <b>{group.severity.value} {group.code}</b> {group.title}"
    lines = [_finding_line(message, nodes) for message, nodes in group.lines[:_MAX_LINES]]
    if len(group.lines) > _MAX_LINES:
        lines.append(f"- and {len(group.lines) - _MAX_LINES} more")
    body = "\n".join([*lines, f"- → {words(group.remedy)}"])
    is_open = " open" if group.severity is Severity.ERROR else ""
    return f"<details{is_open}><summary>{title}</summary>\n\n{body}\n\n</details>\n"


def _finding_line(message: str, nodes: Sequence[str]) -> str:
    names = ", ".join(code(name) for name in nodes[:_MAX_NAMES])
    more = f" and {len(nodes) - _MAX_NAMES} more nodes" if len(nodes) > _MAX_NAMES else ""
    return (
        f"- {names}{more}: {words(message)}"
        if nodes
        else f"- {words(message) if message[:1].isalpha() else code(message)}"
    )


def _nodes(report: Report) -> str:
    if not report.nodes:
        return ""
    chosen = report.nodes if len(report.nodes) <= _MAX_NODES else nodes_that_matter(report)[:_MAX_NODES]
    some = "" if len(chosen) == len(report.nodes) else f"{len(chosen)} that matter of "
    head = "| node | op | as | input | weight scale | size | note |\n|---|---|---|---|--:|--:|---|"
    rows = "\n".join(_node_row(node) for node in chosen)
    return f"<details><summary>{some}{len(report.nodes)} nodes</summary>\n\n{head}\n{rows}\n\n</details>\n"


def _node_row(node: NodeReport) -> str:
    weight = node.tensor(Role.WEIGHT)
    size = stored_bytes(node)
    cells = (
        code(node.name),
        words(pattern_words(node)),
        words(compute_words(node)),
        words(codes_words(node.tensor(Role.INPUT))),
        words(span_words(weight.scale_min, weight.scale_max)) if weight else "",
        words(size_words(size)) if size else "",
        words(note_words(node)),
    )
    return f"| {' | '.join(cells)} |"


def within_limit(parts: Sequence[str]) -> str:
    """Return as many parts as there is room for, and a word where some are left out."""
    text = ""
    for index, part in enumerate(part for part in parts if part):
        if len(text) + len(part) > MAX_CHARACTERS:
            return f"{text}\n_Cut here after {index} of {len(parts)} parts: a comment has no room for more._\n"
        text += f"{part}\n"
    return text
