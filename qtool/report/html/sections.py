"""The parts of the page above its table: outcome, facts, findings, sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.report.finding_groups import finding_groups
from qtool.report.html.charts import stacked_bar
from qtool.report.html.markup import Markup, element, joined
from qtool.report.node_words import stored_bytes
from qtool.report.quantities import share_words, size_words
from qtool.report.summary import count_line, fact_rows, outcome_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport
    from qtool.report.finding_groups import FindingGroup

_MAX_BARS: Final = 30
_MAX_LINES: Final = 8
_NUM_HUES: Final = 6


def headline(report: Report) -> Markup:
    """Return what the file is called, and the outcome in one sentence."""
    word = report.outcome.value.replace("_", " ")
    found = count_line(report)
    return element(
        "header",
        element("p", element("span", word, class_=f"outcome {report.outcome.value}"), " ", found, class_="counts"),
        element("h1", report.name),
        element("p", outcome_words(report), class_="sentence"),
    )


def facts(rows: Mapping[str, str]) -> Markup:
    """Return labels and values."""
    pairs = (element("div", element("dt", label), element("dd", value)) for label, value in rows.items())
    return element("dl", *pairs, class_="facts")


def summary(report: Report) -> Markup:
    """Return the facts of the file."""
    return element("section", element("h2", "Summary"), facts(fact_rows(report)))


def findings(groups: Sequence[FindingGroup], *, title: str = "Findings") -> Markup:
    """Return all findings with what to do, those of one code together."""
    shown = [_group(group) for group in groups] or [element("p", "None.", class_="quiet")]
    return element("section", element("h2", title), *shown, class_="findings")


def _group(group: FindingGroup) -> Markup:
    lines = [_line(message, nodes) for message, nodes in group.lines]
    rest = lines[_MAX_LINES:]
    more = element("details", element("summary", f"{len(rest)} more"), element("ul", *rest)) if rest else None
    return element(
        "article",
        element("h3", element("span", group.severity.value, class_="severity"), f" {group.code} ", group.title),
        element("ul", *lines[:_MAX_LINES]),
        more,
        element("p", group.remedy, class_="remedy"),
        class_=group.severity.value,
    )


def _line(message: str, nodes: Sequence[str]) -> Markup:
    names = [element("code", name) for name in nodes]
    apart = [part for name in names for part in (Markup(", "), name)][1:]
    if len(names) <= _MAX_LINES:
        return element("li", *apart, ": " if names else None, message)
    few = element("span", *apart[: 2 * _MAX_LINES - 1])
    rest = element("details", element("summary", f"{len(names) - _MAX_LINES} more nodes"), *apart[2 * _MAX_LINES :])
    return element("li", message, ": ", few, rest)


def sizes(report: Report) -> Markup:
    """Return what its tensors take, by dtype against float32, and by layer."""
    by_dtype = report.bytes_by_dtype
    stored = sum(count for _, count in by_dtype)
    if not stored:
        return Markup()
    whole = max(stored, report.float_bytes)
    parts = [
        (float(count), f"h{index % _NUM_HUES}", f"{dtype} {size_words(count)}")
        for index, (dtype, count) in enumerate(by_dtype)
    ]
    rows = [_bar_row("in the file", stacked_bar(parts, whole, label="bytes by dtype"), size_words(stored))]
    if report.float_bytes:
        bar = stacked_bar([(report.float_bytes, "quietfill", "all in float32")], whole, label="bytes in float32")
        rows.append(_bar_row("in float32", bar, size_words(report.float_bytes)))
    legend = [
        element("li", _swatch(f"h{index % _NUM_HUES}"), f"{dtype} {size_words(count)}, {share_words(count, stored)}")
        for index, (dtype, count) in enumerate(by_dtype)
    ]
    return element(
        "section",
        element("h2", "Size"),
        element("table", *rows, class_="bars"),
        element("ul", *legend, class_="legend"),
        _by_layer(report, [dtype for dtype, _ in by_dtype]),
    )


def _by_layer(report: Report, dtypes: Sequence[str]) -> Markup | None:
    ordered = sorted((node for node in report.nodes if stored_bytes(node)), key=stored_bytes, reverse=True)
    if not ordered:
        return None
    largest = stored_bytes(ordered[0])
    shown, rest = ordered[:_MAX_BARS], ordered[_MAX_BARS:]
    rows = [
        _bar_row(
            node.name, stacked_bar(_parts(node, dtypes), largest, label="bytes by dtype"), size_words(stored_bytes(node))
        )
        for node in shown
    ]
    said = f"The largest {len(shown)} of {len(ordered)} layers; the others take "
    more = element("p", f"{said}{size_words(sum(map(stored_bytes, rest)))} together.", class_="quiet") if rest else None
    return joined(element("h3", "By layer"), element("table", *rows, class_="bars"), more)


def _parts(node: NodeReport, dtypes: Sequence[str]) -> list[tuple[float, str, str]]:
    by_dtype: dict[str, int] = {}
    for tensor in node.tensors:
        by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.num_bytes
    ordered = [dtype for dtype in dtypes if dtype in by_dtype] + [each for each in by_dtype if each not in dtypes]
    hues = {dtype: f"h{index % _NUM_HUES}" for index, dtype in enumerate(dtypes)}
    return [
        (float(by_dtype[dtype]), hues.get(dtype, "quietfill"), f"{dtype} {size_words(by_dtype[dtype])}")
        for dtype in ordered
        if by_dtype[dtype]
    ]


def _bar_row(label: str, bar: Markup, number: str) -> Markup:
    return element(
        "tr", element("th", label, scope="row", title=label), element("td", bar), element("td", number, class_="num")
    )


def _swatch(css_class: str) -> Markup:
    return element("svg", element("rect", width="100%", height="100%", class_=css_class), class_="swatch")


def grouped(report: Report) -> tuple[FindingGroup, ...]:
    """Return the report's findings, those of one code together."""
    return finding_groups(report.findings)
