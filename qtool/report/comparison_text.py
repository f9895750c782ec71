"""A comparison of two files as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qtool.inspection.compare import Sameness
from qtool.report.comparison_words import change_rows, node_line, sameness_words
from qtool.report.console import render
from qtool.report.finding_groups import finding_groups
from qtool.report.look import DEFAULT_WIDTH
from qtool.report.text import finding_parts
from qtool.report.untrusted import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from qtool.inspection.codes import Finding
    from qtool.inspection.compare import Change, Comparison
    from qtool.inspection.nodes import NodeReport

_STYLES = {Sameness.EQUAL: "bold green", Sameness.DIFFERENT: "bold red", Sameness.UNKNOWN: "bold yellow"}
_MAX_NODES = 20
_MIN_TABLE_WIDTH = 70


def render_comparison(
    comparison: Comparison, *, verbose: bool = False, width: int = DEFAULT_WIDTH, color: bool = False
) -> str:
    """Return a comparison for people.

    Args:
        comparison: what differs.
        verbose: list every node and finding.
        width: columns that a line may have.
        color: write ANSI colours.
    """
    head = Text().append(comparison.sameness.value, style=_STYLES[comparison.sameness])
    names = f"{shortened(comparison.first.name)} and {shortened(comparison.second.name)}"
    parts: list[RenderableType] = [head.append(f": {names}: {sameness_words(comparison)}")]
    if comparison.facts:
        parts += [Text(), Text("facts", style="bold"), _changes(comparison.facts, width)]
    shown = comparison.changed if verbose else comparison.changed[:_MAX_NODES]
    for change in shown:
        parts += [Text(), Text(shortened(change.name), style="bold"), _changes(change.changes, width)]
    if len(shown) < len(comparison.changed):
        parts += [Text(), Text(f"and {len(comparison.changed) - len(shown)} more nodes changed; --verbose lists them")]
    parts += _nodes("only in the second", comparison.added, verbose)
    parts += _nodes("only in the first", comparison.removed, verbose)
    parts += _findings("findings that came", comparison.came, verbose)
    parts += _findings("findings that went", comparison.went, verbose)
    parts += _lines("other tensors with other numbers", comparison.tensors, verbose)
    parts += _lines("not compared", comparison.not_compared, verbose)
    return render(parts, width=width, color=color)


def _changes(changes: Sequence[Change], width: int) -> RenderableType:
    rows = change_rows(changes)
    if width < _MIN_TABLE_WIDTH:
        return Padding(Text("\n".join(f"{what}: {before} -> {after}" for what, before, after in rows)), (0, 0, 0, 2))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=False, overflow="fold", max_width=30)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for what, before, after in rows:
        grid.add_row(Text(what, style="dim"), Text(before), Text(f"-> {after}"))
    return Padding(grid, (0, 0, 0, 2))


def _nodes(title: str, nodes: Sequence[NodeReport], verbose: bool) -> list[RenderableType]:
    return _lines(title, [f"{shortened(node.name)}: {node_line(node)}" for node in nodes], verbose)


def _lines(title: str, lines: Sequence[str], verbose: bool) -> list[RenderableType]:
    if not lines:
        return []
    shown = lines if verbose else lines[:_MAX_NODES]
    rest = [f"and {len(lines) - len(shown)} more; --verbose lists them"] if len(shown) < len(lines) else []
    return [Text(), Text(f"{title}: {len(lines)}", style="bold"), *(_indented(line) for line in [*shown, *rest])]


def _findings(title: str, findings: Sequence[Finding], verbose: bool) -> list[RenderableType]:
    if not findings:
        return []
    return [Text(), Text(title, style="bold"), *finding_parts(finding_groups(findings), verbose=verbose)[1:]]


def _indented(text: str) -> RenderableType:
    return Padding(Text(shortened(text)), (0, 0, 0, 2))
