"""A comparison of two files as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.report.comparison_words import change_rows, node_line, sameness_words
from qtool.report.finding_groups import finding_groups
from qtool.report.html.markup import Markup, element
from qtool.report.html.page import page
from qtool.report.html.sections import dtype_bars, findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.inspection.codes import Finding
    from qtool.inspection.compare import Change, Comparison
    from qtool.inspection.nodes import NodeReport


def comparison_page(comparison: Comparison) -> str:
    """Return the page of a comparison, as safe as that of a report."""
    body = [
        _headline(comparison),
        _facts(comparison.facts),
        _sizes(comparison),
        _changed(comparison),
        _nodes("Only in the second", comparison.added),
        _nodes("Only in the first", comparison.removed),
        _findings("Findings that came", comparison.came),
        _findings("Findings that went", comparison.went),
        _lines(f"Other tensors with other numbers: {len(comparison.tensors)}", comparison.tensors),
        _lines("Not compared", comparison.not_compared),
    ]
    return page(f"{comparison.first.name} and {comparison.second.name}", body)


def _headline(comparison: Comparison) -> Markup:
    word = comparison.sameness.value
    return element(
        "header",
        element("p", element("span", word, class_=f"outcome {word}"), class_="counts"),
        element("h1", comparison.first.name, Markup(" &rarr; "), comparison.second.name),
        element("p", sameness_words(comparison), class_="sentence"),
    )


def _facts(changes: Sequence[Change]) -> Markup:
    if not changes:
        return Markup()
    return element("section", element("h2", "Facts"), _table(changes))


def _table(changes: Sequence[Change]) -> Markup:
    head = element("tr", *(element("th", title) for title in ("what", "first", "second")))
    rows = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in change_rows(changes))
    return element("div", element("table", head, *rows, class_="changes"), class_="wide")


def _cell(text: str) -> Markup:
    return element("td", text)


def _sizes(comparison: Comparison) -> Markup:
    files = [("first", comparison.first), ("second", comparison.second)]
    if not any(report.bytes_by_dtype for _, report in files):
        return Markup()
    return element("section", element("h2", "Size"), dtype_bars(files))


def _changed(comparison: Comparison) -> Markup:
    if not comparison.changed:
        return Markup()
    total = len(comparison.changed) + comparison.num_same
    each = [
        element("details", element("summary", element("code", change.name)), _table(change.changes), open=True)
        for change in comparison.changed
    ]
    title = f"Nodes that changed, {len(comparison.changed)} of {total} that both have"
    return element("section", element("h2", title), *each, class_="nodechanges")


def _nodes(title: str, nodes: Sequence[NodeReport]) -> Markup:
    if not nodes:
        return Markup()
    lines = (element("li", element("code", node.name), f" {node_line(node)}") for node in nodes)
    return element("section", element("h2", f"{title}: {len(nodes)}"), element("ul", *lines))


def _findings(title: str, found: Sequence[Finding]) -> Markup:
    return findings(finding_groups(found), title=title) if found else Markup()


def _lines(title: str, lines: Sequence[str]) -> Markup:
    if not lines:
        return Markup()
    return element("section", element("h2", title), element("ul", *(element("li", line) for line in lines)))
