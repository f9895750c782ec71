"""The plot of saturation margins: how near each layer's pair sums come to the end of int16, on each backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.inspection.margins import margins_of
from qtool.report.html.charts import marks_line, shape_of
from qtool.report.html.markup import Markup, element
from qtool.report.node_words import worst_margin
from qtool.report.quantities import count_words
from qtool.saturation.verdict import INT16_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.inspection.margins import Margin
    from qtool.inspection.nodes import NodeReport

_MIN_AXIS: Final = 36_000
"""Where the axis ends at least: a little beyond int16."""

_MAX_LAYERS: Final = 30

Series = tuple[str, ...]
"""Backends that reach the same in every layer, and so share a mark."""


def saturation(nodes: Sequence[NodeReport]) -> Markup:
    """Return the plot; nothing where no kernel adds in int16, or no weight is known."""
    found = [(node, reach) for node in nodes if (reach := _reach(margins_of(node)))]
    if not found:
        return Markup()
    found.sort(key=lambda pair: (-_own(*pair)[0], -max(abs(each.worst_pair_sum or 0) for each in pair[1].values())))
    series = _series([reach for _, reach in found])
    shown = found[:_MAX_LAYERS]
    legend = [
        element(
            "li", element("svg", element("g", shape_of(number), class_=f"b{number}"), class_="key"), ", ".join(names)
        )
        for number, names in enumerate(series)
    ]
    end = max(_MIN_AXIS, 1.02 * max(abs(each.worst_pair_sum or 0) for _, reach in shown for each in reach.values()))
    axis = element("svg", element("text", str(INT16_MAX), x=f"{100 * INT16_MAX / end:.4g}%", y="80%"), class_="axis")
    head = element("tr", element("th"), element("td", axis), element("td", class_="num"))
    more = (
        f" Shown are the {len(shown)} nearest of {count_words(len(found), 'layer')}." if len(found) > len(shown) else ""
    )
    return element(
        "section",
        element("h2", "Saturation margin"),
        element(
            "p",
            "The largest sum of two products that each layer's weights allow, on a CPU without VNNI. Beyond "
            f"{INT16_MAX} it leaves int16, and the result is wrong. The number is that of the backends the layer was "
            f"made for, or of the worst where nothing says. Backends that add in int32 have no mark.{more}",
            class_="quiet",
        ),
        element("ul", *legend, class_="legend"),
        element("table", head, *(_row(node, reach, series, end) for node, reach in shown), class_="bars margins"),
    )


def _reach(margins: Sequence[Margin]) -> dict[str, Margin]:
    return {margin.backend: margin for margin in margins if margin.worst_pair_sum is not None}


def _series(layers: Sequence[Mapping[str, Margin]]) -> tuple[Series, ...]:
    """Return the backends, those together that reach the same in every layer."""
    names = dict.fromkeys(name for layer in layers for name in layer)
    alike: dict[tuple[int | None, ...], list[str]] = {}
    for name in names:
        answers = tuple(layer[name].worst_pair_sum if name in layer else None for layer in layers)
        alike.setdefault(answers, []).append(name)
    return tuple(tuple(each) for each in alike.values())


def _own(node: NodeReport, reach: Mapping[str, Margin]) -> tuple[int, bool, str]:
    """Return (magnitude, whether it leaves int16, number as text) of the node's own backends."""
    worst = worst_margin(node)
    if worst is None or worst.backend not in reach:
        return 0, False, "exact"
    return abs(worst.worst_pair_sum or 0), bool(worst.num_channels), str(worst.worst_pair_sum)


def _row(node: NodeReport, reach: Mapping[str, Margin], series: Sequence[Series], end: float) -> Markup:
    marks = []
    for number, names in enumerate(series):
        margin = reach.get(names[0])
        if margin is not None:
            title = f"{', '.join(names)}: {margin.worst_pair_sum}"
            marks.append((abs(margin.worst_pair_sum or 0) / end, number, title, bool(margin.num_channels)))
    label = "; ".join(title for _, _, title, _ in marks)
    line = marks_line(marks, limit=INT16_MAX / end, label=label)
    _, is_beyond, text = _own(node, reach)
    number_cell = element("td", text, class_="num bad" if is_beyond else "num")
    return element("tr", element("th", node.name, scope="row", title=node.name), element("td", line), number_cell)
