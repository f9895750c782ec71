"""The report on a file as text: the outcome first, then facts, findings, and the nodes that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qtool.backends.target import target_name
from qtool.inspection.codes import Severity
from qtool.inspection.findings import Outcome
from qtool.readers.facts import Role
from qtool.report.chosen_nodes import nodes_that_matter
from qtool.report.console import render
from qtool.report.finding_groups import finding_groups
from qtool.report.look import DEFAULT_WIDTH
from qtool.report.node_lines import node_lines
from qtool.report.node_table import NodeCells, TensorCells, node_table
from qtool.report.node_words import compute_words, note_words, pattern_words, seen_words
from qtool.report.quantities import size_words, span_words
from qtool.report.summary import count_line, fact_rows, outcome_words
from qtool.report.untrusted import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport, TensorReport
    from qtool.report.finding_groups import FindingGroup


_OUTCOME_STYLES = {Outcome.OK: "bold green", Outcome.FINDINGS: "bold red"}
_SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
_MAX_NAMES = 6
_MAX_LINES = 12
_MAX_NODES = 30
_MIN_GRID_WIDTH = 60


def render_text(report: Report, *, verbose: bool = False, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """Return the report for people.

    Args:
        report: what was found.
        verbose: list every node and every finding; else those that matter, and how many are left out.
        width: columns that a line may have.
        color: write ANSI colours.
    """
    parts: list[RenderableType] = [_headline(report), facts_table(fact_rows(report), width)]
    parts += finding_parts(finding_groups(report.findings), verbose=verbose)
    parts += _nodes(report, verbose, width)
    return render(parts, width=width, color=color)


def _headline(report: Report) -> Text:
    found = count_line(report)
    text = Text().append(
        report.outcome.value.replace("_", " "), style=_OUTCOME_STYLES.get(report.outcome, "bold yellow")
    )
    return text.append(f": {shortened(report.name)} {outcome_words(report)}{f' ({found})' if found else ''}")


def facts_table(rows: Mapping[str, str], width: int) -> RenderableType:
    """Return labels and values side by side, or on a narrow terminal one below the other."""
    if width < _MIN_GRID_WIDTH:
        lines = [Text().append(f"{label}: ", style="dim").append(value) for label, value in rows.items()]
        return Group(*lines)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows.items():
        grid.add_row(Text(label, style="dim"), Text(value))
    return Padding(grid, (0, 0, 0, 2))


def finding_parts(groups: Sequence[FindingGroup], *, verbose: bool) -> list[RenderableType]:
    """Return findings one code below the other, each with what to do."""
    parts: list[RenderableType] = []
    for group in groups:
        head = Text().append(f"{group.severity.value} {group.code}", style=_SEVERITY_STYLES[group.severity])
        parts += [Text(), head.append(f" {group.title}")]
        shown = group.lines if verbose else group.lines[:_MAX_LINES]
        parts += [Padding(Text(_finding_line(message, nodes, verbose)), (0, 0, 0, 2)) for message, nodes in shown]
        if len(shown) < len(group.lines):
            parts.append(Text(f"  and {len(group.lines) - len(shown)} more; --verbose lists them"))
        parts.append(Padding(Text(f"-> {printable(group.remedy)}", style="dim"), (0, 0, 0, 2)))
    return parts


def _finding_line(message: str, nodes: Sequence[str], verbose: bool) -> str:
    if not nodes:
        return shortened(message, 1000)
    shown = nodes if verbose else nodes[:_MAX_NAMES]
    more = f" and {len(nodes) - len(shown)} more nodes" if len(shown) < len(nodes) else ""
    return f"{', '.join(shortened(name) for name in shown)}{more}: {shortened(message, 1000)}"


def _nodes(report: Report, verbose: bool, width: int) -> list[RenderableType]:
    chosen = report.nodes if verbose else nodes_that_matter(report)[:_MAX_NODES]
    if not chosen:
        return []
    is_all = len(chosen) == len(report.nodes)
    title = "nodes" if is_all else f"nodes that matter, {len(chosen)} of {len(report.nodes)}; --verbose lists all"
    cells = [_node_cells(node) for node in chosen] if verbose else []
    table = node_table(cells, width=width) if verbose else node_lines(chosen, width=width)
    return [Text(), Text(title, style="bold"), *table]


def _node_cells(node: NodeReport) -> NodeCells:
    return NodeCells(
        name=node.name,
        compute=compute_words(node),
        pattern=pattern_words(node),
        backend=shortened(target_name(node.backends)) if node.backends else "-",
        why=note_words(node),
        tensors=tuple(_tensor_cells(each, node) for each in node.tensors if each.role is not Role.BIAS),
    )


def _tensor_cells(tensor: TensorReport, node: NodeReport) -> TensorCells:
    is_input = tensor.role is Role.INPUT and node.multiplies_codes and node.reduce_range is not None
    return TensorCells(
        tensor=tensor.role.value,
        dtype=shortened(tensor.dtype, 20),
        qmin="" if tensor.qmin is None else str(tensor.qmin),
        qmax="" if tensor.qmax is None else str(tensor.qmax),
        seen=seen_words(tensor),
        granularity=tensor.granularity if tensor.is_quantized else "",
        axis="" if tensor.axis is None else str(tensor.axis),
        reduce_range=("yes" if node.reduce_range else "no") if is_input else "",
        scale=span_words(tensor.scale_min, tensor.scale_max),
        zero_point=span_words(tensor.zero_point_min, tensor.zero_point_max),
        size=size_words(tensor.num_bytes) if tensor.num_bytes else "",
    )
