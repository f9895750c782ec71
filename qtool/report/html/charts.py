"""The charts of the page, as SVG without text: labels are HTML beside them, which wraps and can be copied."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from qtool.report.html.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.inspection.nodes import Histogram

MAX_BINS: Final = 32
"""Steps of a histogram that are drawn; more would be thinner than a pixel."""

_HEIGHT: Final = 24

_NEAR: Final = 0.01
"""Of the whole width: marks that would cover each other."""

_LANE: Final = 6.5
"""Pixels between such marks."""

SHAPES: Final = (
    Markup('<circle r="3.5"/>'),
    Markup('<path d="M-3-3h6v6h-6z"/>'),
    Markup('<path d="M0-4.5 4.5 0 0 4.5-4.5 0z"/>'),
    Markup('<path d="M0-4 4 3H-4z"/>'),
    Markup('<path d="M0 4 4-3H-4z"/>'),
    Markup('<path d="M-1.5-4h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"/>'),
)
"""One for each backend, so that no meaning hangs on a colour."""


def stacked_bar(parts: Sequence[tuple[float, str, str]], whole: float, *, label: str) -> Markup:
    """Return one bar of several parts.

    Args:
        parts: (size, class, title) of each.
        whole: the size that is as long as the bar can be.
        label: what it shows, for those who cannot see it.
    """
    drawn, x = [], 0.0
    for size, css_class, title in parts:
        width = 100 * size / whole if whole else 0.0
        drawn.append(
            element(
                "rect", element("title", title), x=f"{x:.3g}%", width=f"{width:.4g}%", height="100%", class_=css_class
            )
        )
        x += width
    return element("svg", *drawn, class_="bar", role="img", aria_label=label)


def marks_line(marks: Sequence[tuple[float, int, str, bool]], *, limit: float, label: str) -> Markup:
    """Return a line with one mark for each backend, and a stroke where int16 ends.

    Args:
        marks: (position in 0..1, number of the backend, title, whether it is beyond the limit) of each.
        limit: position of the stroke.
        label: what it shows, for those who cannot see it.
    """
    end = f"{100 * limit:.4g}%"
    far = max((position for position, *_ in marks), default=0.0)
    drawn = [
        element("line", x1="0", x2=f"{100 * far:.4g}%", y1="50%", y2="50%", class_="stem"),
        element("line", x1=end, x2=end, y1="0", y2="100%", class_="limit"),
    ]
    for (position, number, title, is_beyond), lane in zip(marks, _lanes([mark[0] for mark in marks]), strict=True):
        css_class = f"mark b{number}{' beyond' if is_beyond else ''}"
        shape = element("svg", shape_of(number), x=f"{100 * position:.4g}%", y="50%", overflow="visible")
        drawn.append(element("g", element("title", title), shape, class_=css_class, transform=lane))
    return element("svg", *drawn, class_="marks", role="img", aria_label=label)


def _lanes(positions: Sequence[float]) -> list[str | None]:
    """Return how far each mark is moved up or down, so that those at one place can be told apart."""
    lanes: list[str | None] = []
    for index, position in enumerate(positions):
        near = [other for other, place in enumerate(positions) if abs(place - position) < _NEAR]
        offset = (near.index(index) - (len(near) - 1) / 2) * _LANE
        lanes.append(f"translate(0 {offset:g})" if len(near) > 1 else None)
    return lanes


def shape_of(number: int) -> Markup:
    """Return the shape of the backend of that number."""
    return SHAPES[number % len(SHAPES)]


def histogram(found: Histogram, *, id_: str, css_class: str) -> Markup:
    """Return a small histogram. Its path has the id, so that `histogram_again` can show it a second time."""
    path = Markup(f'<path id="{id_}" d="{_outline(found.counts)}"/>')
    return element("svg", path, **_frame(found), class_=css_class)


def histogram_again(found: Histogram, *, id_: str) -> Markup:
    """Return the histogram whose path has the id once more, as large as there is room."""
    drawn = Markup(f'<use href="#{id_}"/>')
    return element("svg", drawn, **_frame(found), class_="large")


def _frame(found: Histogram) -> dict[str, str]:
    steps = len(_drawn_counts(found.counts))
    return {"viewBox": f"0 0 {steps} {_HEIGHT}", "preserveAspectRatio": "none"}


def _drawn_counts(counts: Sequence[int]) -> list[int]:
    """Return at most `MAX_BINS` counts, neighbours added together."""
    together = -(-len(counts) // MAX_BINS) or 1
    return [sum(counts[start : start + together]) for start in range(0, len(counts), together)]


def _outline(counts: Sequence[int]) -> str:
    """Return the path of the bars; one that holds anything at all is at least a unit high, so that outliers show."""
    drawn = _drawn_counts(counts)
    highest = max(drawn, default=0)
    tops = [_HEIGHT - (max(1, round((_HEIGHT - 1) * count / highest)) if count > 0 else 0) for count in drawn]
    steps = "".join(f"V{top}h{len(list(same))}" for top, same in groupby(tops))
    return f"M0 {_HEIGHT}{steps}V{_HEIGHT}z"
