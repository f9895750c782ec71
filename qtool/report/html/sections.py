"""The parts of the page above its table: outcome, facts, findings, sizes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from qtool.report.finding_groups import finding_groups
from qtool.report.html.charts import stacked_bar
from qtool.report.html.markup import Markup, element, joined
from qtool.report.node_words import stored_bytes, stored_dtype
from qtool.report.quantities import share_words, size_words
from qtool.report.summary import count_line, fact_rows, outcome_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport
    from qtool.report.finding_groups import FindingGroup

_MAX_BARS: Final = 20
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
    if not report.bytes_by_dtype:
        return Markup()
    bars = dtype_bars([("in the file", report)], float_bytes=report.float_bytes)
    return element("section", element("h2", "Size"), bars, _by_layer(report))


def dtype_bars(files: Sequence[tuple[str, Report]], *, float_bytes: int = 0) -> Markup:
    """Return a bar for each file with its bytes by dtype, one for all of it in float32, and the hues of the dtypes."""
    stored = [sum(count for _, count in report.bytes_by_dtype) for _, report in files]
    whole = max(*stored, float_bytes, 1)
    hues = _hues(report for _, report in files)
    rows = [
        _bar_row(label, _dtype_bar(report.bytes_by_dtype, whole, hues), size_words(size))
        for (label, report), size in zip(files, stored, strict=True)
    ]
    if float_bytes:
        bar = stacked_bar([(float_bytes, "quietfill", "all in float32")], whole, label="bytes in float32")
        rows.append(_bar_row("in float32", bar, size_words(float_bytes)))
    legend = [element("li", _swatch(hue), dtype, _share(dtype, files, stored)) for dtype, hue in hues.items()]
    return joined(element("table", *rows, class_="bars"), element("ul", *legend, class_="legend"))


def _hues(reports: Iterable[Report]) -> dict[str, str]:
    dtypes = dict.fromkeys(dtype for report in reports for dtype, _ in report.bytes_by_dtype)
    return {dtype: f"h{index % _NUM_HUES}" for index, dtype in enumerate(dtypes)}


def _dtype_bar(counts: Iterable[tuple[str, int]], whole: int, hues: Mapping[str, str]) -> Markup:
    parts = [(float(count), hues.get(dtype, "quietfill"), f"{dtype} {size_words(count)}") for dtype, count in counts]
    return stacked_bar(parts, whole, label=", ".join(title for _, _, title in parts))


def _share(dtype: str, files: Sequence[tuple[str, Report]], stored: Sequence[int]) -> str | None:
    """Return what a dtype takes where there is one file."""
    if len(files) > 1:
        return None
    count = dict(files[0][1].bytes_by_dtype)[dtype]
    return f" {size_words(count)}, {share_words(count, stored[0])}"


def _by_layer(report: Report) -> Markup | None:
    ordered = sorted((node for node in report.nodes if stored_bytes(node)), key=stored_bytes, reverse=True)
    if not ordered:
        return None
    shown, rest = ordered[:_MAX_BARS], ordered[_MAX_BARS:]
    hues, largest = _hues([report]), stored_bytes(ordered[0])
    rows = [
        _bar_row(node.name, _dtype_bar(_bytes_by_dtype(node, hues), largest, hues), size_words(stored_bytes(node)))
        for node in shown
    ]
    said = f"The largest {len(shown)} of {len(ordered)} layers; the others take "
    more = element("p", f"{said}{size_words(sum(map(stored_bytes, rest)))} together.", class_="quiet") if rest else None
    return joined(element("h3", "By layer"), element("table", *rows, class_="bars"), more)


def _bytes_by_dtype(node: NodeReport, hues: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return what a node's tensors take, in the order in which the whole file is drawn."""
    counts = Counter[str]()
    for tensor in node.tensors:
        counts[stored_dtype(tensor)] += tensor.num_bytes
    return [(dtype, counts[dtype]) for dtype in dict.fromkeys([*hues, *counts]) if counts[dtype]]


def _bar_row(label: str, bar: Markup, number: str) -> Markup:
    return element(
        "tr", element("th", label, scope="row", title=label), element("td", bar), element("td", number, class_="num")
    )


def _swatch(css_class: str) -> Markup:
    return element("svg", element("rect", width="100%", height="100%", class_=css_class), class_="swatch")


def grouped(report: Report) -> tuple[FindingGroup, ...]:
    """Return the report's findings, those of one code together."""
    return finding_groups(report.findings)
