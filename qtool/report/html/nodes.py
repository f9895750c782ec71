"""The table of nodes: one row each, and below it, to be opened, all its tensors and what its sums can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.inspection.margins import margins_of
from qtool.readers.facts import Role
from qtool.report.html.charts import histogram, histogram_again
from qtool.report.html.markup import Markup, element, joined
from qtool.report.node_words import (
    codes_words,
    compute_words,
    granularity_words,
    input_words,
    note_words,
    pattern_words,
    seen_words,
    stored_bytes,
    weight_words,
    worst_margin,
)
from qtool.report.quantities import size_words, span_words
from qtool.saturation.verdict import INT16_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.inspection.codes import Finding
    from qtool.inspection.nodes import Histogram, NodeReport, TensorReport

COLUMNS: Final = (
    ("number", "#", True),
    ("node", "node", False),
    ("op", "op", False),
    ("as", "as", False),
    ("input", "input codes", False),
    ("weight", "weight", False),
    ("size", "size", True),
    ("sum", "worst pair sum", True),
    ("scale", "weight scale", True),
    ("weights", "weights", None),
    ("scales", "scales", None),
    ("findings", "findings", True),
)
"""(key, title, whether it holds numbers) of each; what is drawn (None) cannot be sorted by."""

_ALWAYS: Final = frozenset({"number", "node", "op", "as", "size"})
"""Columns that are there even if they say nothing."""


def node_table(nodes: Sequence[NodeReport], findings: Mapping[str, Sequence[Finding]]) -> Markup:
    """Return the table, with the columns in which any node has something to say.

    Args:
        nodes: the nodes.
        findings: of each node's name, what is said of it.
    """
    rows = [_cells(index, node, findings.get(node.name, ())) for index, node in enumerate(nodes, 1)]
    said = _ALWAYS | {key for row in rows for key, cell in row.items() if cell not in _EMPTY}
    shown = [column for column in COLUMNS if column[0] in said]
    bodies = [
        element("tbody", element("tr", *(row[key] for key, _, _ in shown)), _below(index, node, findings, len(shown)))
        for index, (node, row) in enumerate(zip(nodes, rows, strict=True), 1)
    ]
    head = element("thead", element("tr", *(_heading(*column) for column in shown)))
    return element("div", element("table", head, *bodies, id="nodes"), class_="wide")


def _heading(key: str, title: str, holds_numbers: bool | None) -> Markup:
    sorted_by = None if holds_numbers is None else key
    return element("th", title, scope="col", data_key=sorted_by, class_="num" if holds_numbers else None)


def _below(index: int, node: NodeReport, findings: Mapping[str, Sequence[Finding]], num_columns: int) -> Markup:
    panel = _more(index, node, findings.get(node.name, ()))
    return element("tr", element("td", panel, colspan=num_columns), class_="more")


def _cells(index: int, node: NodeReport, findings: Sequence[Finding]) -> dict[str, Markup]:
    """Return the cells of a node's row, by column."""
    weight = node.tensor(Role.WEIGHT)
    size = stored_bytes(node)
    codes = ", ".join(dict.fromkeys(each.code for each in findings))
    return {
        "number": _number(index, str(index)),
        "node": element("th", element("details", element("summary", node.name)), scope="row"),
        "op": element("td", pattern_words(node)),
        "as": element("td", element("span", compute_words(node), class_="as" if node.is_quantized else "as float")),
        "input": element("td", input_words(node)),
        "weight": element("td", weight_words(weight)),
        "size": _number(size, size_words(size) if size else ""),
        "sum": _sum_cell(node),
        "scale": _scale_cell(weight),
        "weights": element("td", _spark(weight.values if weight else None, f"w{index}", "spark")),
        "scales": element("td", _spark(weight.scales if weight else None, f"s{index}", "spark scales")),
        "findings": _number(len(findings), codes, css_class=findings[0].severity.value if findings else None),
    }


def _sum_cell(node: NodeReport) -> Markup:
    worst = worst_margin(node)
    if worst is None or worst.worst_pair_sum is None:
        return _number(0, "")
    reach = worst.worst_pair_sum
    return _number(abs(reach), str(reach), css_class="bad" if worst.num_channels else None)


def _scale_cell(weight: TensorReport | None) -> Markup:
    if weight is None or weight.scale_max is None:
        return _number(0, "")
    return _number(weight.scale_max, span_words(weight.scale_min, weight.scale_max, digits=3))


def _number(value: float, text: str, *, css_class: str | None = None) -> Markup:
    """Return a cell that is sorted by its value."""
    return element("td", text, class_=css_class, data_v=value if text else "")


_EMPTY: Final = frozenset({_number(0, ""), element("td", "")})


def _spark(found: Histogram | None, id_: str, css_class: str) -> Markup | None:
    if found is None or not any(found.counts):
        return None
    return histogram(found, id_=id_, css_class=css_class)


def _more(index: int, node: NodeReport, findings: Sequence[Finding]) -> Markup:
    weight = node.tensor(Role.WEIGHT)
    charts = [
        _chart(weight.values if weight else None, f"w{index}", "weights, as codes" if _is_coded(weight) else "weights"),
        _chart(weight.scales if weight else None, f"s{index}", "scales"),
    ]
    said = [element("p", f"{each.code} {each.severity.value}: {each.message}") for each in findings]
    return element("div", _tensor_table(node.tensors), *charts, element("div", _facts(node), *said), class_="panel")


def _is_coded(weight: TensorReport | None) -> bool:
    return weight is not None and weight.is_quantized


def _chart(found: Histogram | None, id_: str, title: str) -> Markup | None:
    if found is None or not any(found.counts):
        return None
    words = f"{title}{', logarithmic' if found.is_log else ''}"
    ends = element("span", element("i", f"{found.low:.4g}"), element("i", f"{found.high:.4g}"), class_="ends")
    drawn = histogram_again(found, id_=id_)
    return element("figure", element("figcaption", words), drawn, ends)


def _tensor_table(tensors: Sequence[TensorReport]) -> Markup | None:
    if not tensors:
        return None
    titles = ("tensor", "codes", "scales", "scale", "zero point", "seen", "shape", "size")
    head = element("tr", *(element("th", title) for title in titles))
    return element("table", head, *(_tensor_row(each) for each in tensors))


def _tensor_row(tensor: TensorReport) -> Markup:
    cells = (
        codes_words(tensor),
        granularity_words(tensor),
        span_words(tensor.scale_min, tensor.scale_max),
        span_words(tensor.zero_point_min, tensor.zero_point_max),
        seen_words(tensor),
        "" if tensor.shape is None else " x ".join(str(size) for size in tensor.shape),
        size_words(tensor.num_bytes) if tensor.num_bytes else "",
    )
    head = element("th", tensor.role.value, title=tensor.name if tensor.num_bytes else None)
    return element("tr", head, *(element("td", cell) for cell in cells))


def _facts(node: NodeReport) -> Markup:
    rows = {
        "op in the file": node.target,
        "made for": f"{', '.join(node.backends)} ({node.origin.value})" if node.backends else "",
        "packed as": node.packed_class or "",
        "groups": "" if node.groups in (None, 1) else str(node.groups),
        "reads": ", ".join(node.reads),
        "note": note_words(node),
        "pair sums without VNNI": _sums(node),
    }
    return element("dl", *(joined(element("dt", label), element("dd", text)) for label, text in rows.items() if text))


def _sums(node: NodeReport) -> str:
    """Return what each backend's kernel reaches, those of one answer together."""
    by_answer: dict[str, list[str]] = {}
    for margin in margins_of(node):
        reach = "not known" if margin.worst_pair_sum is None else f"{margin.worst_pair_sum} of {INT16_MAX}"
        answer = reach if margin.adds_in_int16 else "added in int32"
        by_answer.setdefault(answer, []).append(margin.backend)
    return "; ".join(f"{', '.join(names)}: {answer}" for answer, names in by_answer.items())
