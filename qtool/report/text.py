"""The report on a file as text: the outcome first, then facts, findings, and the nodes that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qtool.backends.target import target_name
from qtool.inspection.codes import CODES, Severity
from qtool.inspection.findings import Content, Outcome
from qtool.inspection.target_rules import depends_on_cpu
from qtool.report.console import render
from qtool.report.node_table import NodeCells, TensorCells, node_table
from qtool.report.untrusted import printable, shortened
from qtool.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from qtool.inspection.codes import Finding
    from qtool.inspection.findings import Report
    from qtool.stamp.schema import InputStamp, NodeStamp, TensorStamp

DEFAULT_WIDTH = 100

_TITLES = {code.name: code.title for code in CODES}
_OUTCOME_STYLES = {Outcome.OK: "bold green", Outcome.FINDINGS: "bold red", Outcome.UNKNOWN: "bold yellow"}
_SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}
_MAX_NAMES = 6
_MAX_LINES = 12
_MAX_NODES = 30


def render_text(report: Report, *, verbose: bool = False, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """Return the report for people.

    Args:
        report: what was found.
        verbose: list every node and every finding; else those that matter, and how many are left out.
        width: columns that a line may have.
        color: write ANSI colours.
    """
    parts: list[RenderableType] = [_headline(report), _facts(report)]
    parts += _findings(report, verbose)
    parts += _nodes(report, verbose, width)
    return render(parts, width=width, color=color)


def _headline(report: Report) -> Text:
    counts = [(report.count(severity), severity.value) for severity in Severity]
    found = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count)
    text = Text().append(report.outcome.value, style=_OUTCOME_STYLES[report.outcome])
    return text.append(f": {shortened(report.name)} {_outcome_words(report)}{f' ({found})' if found else ''}")


def _outcome_words(report: Report) -> str:
    target = f"{shortened(report.target.backend or '?')}, isa {report.target.isa or '?'}"
    if report.outcome is Outcome.OK:
        return f"fits {target}"
    if report.outcome is Outcome.UNKNOWN:
        return "does not say what it was made for"
    families = {finding.code[:3] for finding in report.findings if finding.severity is Severity.ERROR}
    words = {
        "QT1": "is not safe to load",
        "QT2": "cannot be relied on",
        "QT3": f"does not fit {target}",
    }
    return " and ".join(words[family] for family in sorted(families))


def _facts(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in _fact_rows(report).items():
        grid.add_row(Text(label), Text(printable(value)))
    return Padding(grid, (0, 0, 0, 2))


def _fact_rows(report: Report) -> dict[str, str]:
    rows = {"file": f"{report.kind.value}, {_size(report.num_bytes)}"}
    if report.bytes_by_dtype:
        rows["tensors"] = ", ".join(f"{dtype} {_size(count)}" for dtype, count in report.bytes_by_dtype)
    stamp = report.stamp
    if stamp is None:
        return rows
    asked = f" (asked for: {report.target.backend}, isa {report.target.isa})" if report.target.is_asked else ""
    rows["stage"] = f"{stamp.stage.value}, by qtool {shortened(stamp.tool_version)}"
    rows["made for"] = f"{shortened(', '.join(stamp.backends))}, isa {stamp.isa.value}{asked}"
    rows["content"] = {
        Content.VERIFIED: "verified: unchanged since it was stamped",
        Content.DIFFERS: "differs from what was stamped",
        Content.UNKNOWN: "unknown",
    }[report.content]
    rows["inputs"] = "; ".join(_input_words(each) for each in stamp.inputs) or "none"
    rows["preprocessing"] = shortened(_preprocessing_words(stamp.preprocessing))
    rows["nodes"] = f"{len(report.int8_nodes())} int8 of {len(stamp.nodes)}"
    rows["range"] = report.range_summary().text()
    islands = "; ".join(f"{count} x {shortened(reason)}" for reason, count in report.float_islands())
    rows["float islands"] = islands or "none"
    return rows


def _findings(report: Report, verbose: bool) -> list[RenderableType]:
    """Return the findings, those of one code together, those of one message on one line."""
    parts: list[RenderableType] = []
    for code in dict.fromkeys(finding.code for finding in report.findings):
        findings = [finding for finding in report.findings if finding.code == code]
        severity = findings[0].severity
        head = Text().append(f"{severity.value} {code}", style=_SEVERITY_STYLES[severity])
        parts += [Text(), head.append(f" {_TITLES.get(code, '')}")]
        messages = list(_by_message(findings).items())
        shown = messages if verbose else messages[:_MAX_LINES]
        parts += [Padding(Text(_finding_line(message, nodes, verbose)), (0, 0, 0, 2)) for message, nodes in shown]
        if len(shown) < len(messages):
            parts.append(Text(f"  and {len(messages) - len(shown)} more; --verbose lists them"))
        parts.append(Padding(Text(f"-> {printable(findings[0].remedy)}", style="dim"), (0, 0, 0, 2)))
    return parts


def _by_message(findings: Sequence[Finding]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for finding in findings:
        grouped.setdefault(finding.message, []).extend([] if finding.node is None else [finding.node])
    return grouped


def _finding_line(message: str, nodes: Sequence[str], verbose: bool) -> str:
    if not nodes:
        return shortened(message, 1000)
    shown = nodes if verbose else nodes[:_MAX_NAMES]
    more = f" and {len(nodes) - len(shown)} more nodes" if len(shown) < len(nodes) else ""
    return f"{', '.join(shortened(name) for name in shown)}{more}: {shortened(message, 1000)}"


def _nodes(report: Report, verbose: bool, width: int) -> list[RenderableType]:
    nodes = report.stamp.nodes if report.stamp else ()
    chosen = nodes if verbose else _nodes_that_matter(report, nodes)
    if not chosen:
        return []
    title = "nodes" if len(chosen) == len(nodes) else f"nodes that matter, {len(chosen)} of {len(nodes)}"
    hint = "" if len(chosen) == len(nodes) else "; --verbose lists all"
    table = node_table([_node_cells(node) for node in chosen], width=width)
    return [Text(), Text(f"{title}{hint}", style="bold"), *table]


def _nodes_that_matter(report: Report, nodes: Sequence[NodeStamp]) -> list[NodeStamp]:
    """Return the float nodes, those a finding singles out, and the fewer ones of a mixed range."""
    summary = report.range_summary()
    few = set(summary.reduced)
    if len(few) * 2 > summary.num_nodes:
        few = {node.name for node in nodes if node.multiplies_codes} - few
    named = {finding.node for finding in report.findings if finding.severity is not Severity.INFO}
    singled_out = named if len(named) < len(nodes) / 2 else set()
    mixed = few if summary.is_mixed else set()
    chosen = [n for n in nodes if n.verdict is Verdict.FLOAT or n.name in singled_out or n.name in mixed]
    return chosen[:_MAX_NODES]


def _node_cells(node: NodeStamp) -> NodeCells:
    tensors = [_tensor_cells("input", each) for each in node.inputs]
    tensors += [_tensor_cells("weight", node.weight)] if node.weight else []
    tensors += [_tensor_cells("output", node.output)] if node.output else []
    kind = "depthwise " if node.depthwise else ""
    pattern = f"{kind}{node.op.value if node.op else node.target}{f' + {node.activation}' if node.activation else ''}"
    return NodeCells(
        name=node.name,
        verdict=node.verdict,
        pattern=pattern,
        backend=shortened(target_name(node.backends)) if tensors else "-",
        why=_saturation_words(node) if node.verdict is Verdict.INT8 else node.reason,
        tensors=tuple(tensors),
    )


def _saturation_words(node: NodeStamp) -> str:
    """Return what is known of int16 pair sums; nothing where the node's kernels have none."""
    if not depends_on_cpu(node):
        return ""
    if node.saturation is None:
        return "full range, not proved before convert" if node.requires_full_range else ""
    worst = f"worst pair sum {node.saturation.worst_pair_sum}"
    if node.is_proved_safe:
        return f"proved safe, {worst}"
    return f"{node.saturation.num_channels} channels can leave int16, {worst}"


def _tensor_cells(role: str, tensor: TensorStamp) -> TensorCells:
    reduced = "yes" if tensor.num_bits < 8 else "no"
    return TensorCells(
        tensor=role,
        dtype=tensor.dtype.value,
        qmin=str(tensor.qmin),
        qmax=str(tensor.qmax),
        granularity=tensor.granularity.value,
        axis="" if tensor.axis is None else str(tensor.axis),
        reduce_range="" if role == "weight" else reduced,
        scale=_span(tensor.scale_min, tensor.scale_max),
        zero_point=_span(tensor.zero_point_min, tensor.zero_point_max),
    )


def _span(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"


def _input_words(each: InputStamp) -> str:
    return f"{shortened(each.name)} {shortened(each.dtype)} [{', '.join(shortened(str(size)) for size in each.shape)}]"


def _preprocessing_words(preprocessing: Mapping[str, object] | None) -> str:
    if not preprocessing:
        return "none stated"
    return ", ".join(f"{key} {value}" for key, value in sorted(preprocessing.items()) if value is not None)


def _size(num_bytes: int) -> str:
    """Return a size in decimal units, as shops and `ls --si` count.

    Example:
        >>> _size(18_870_000), _size(416)
        ('18.87 MB', '416 bytes')
    """
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    return f"{num_bytes / 1e6:.2f} MB" if num_bytes >= 1_000_000 else f"{num_bytes / 1e3:.1f} kB"
