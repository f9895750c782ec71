"""The forms in which a report, or a comparison of two files, can be written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from qtool.inspection.findings import Report
from qtool.report.comparison_json import comparison_to_json
from qtool.report.comparison_markdown import comparison_to_markdown
from qtool.report.comparison_text import render_comparison
from qtool.report.html.comparison import comparison_page
from qtool.report.html.page import report_page
from qtool.report.json_report import to_json
from qtool.report.markdown import to_markdown
from qtool.report.text import DEFAULT_WIDTH, render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.inspection.compare import Comparison


class Form(StrEnum):
    """A form: TEXT for people at a terminal, JSON for programs, MARKDOWN for comments, HTML for a browser."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How text is to look; other forms look the same everywhere.

    Attributes:
        verbose: leave nothing out.
        width: columns that a line may have.
        color: write ANSI colours.
    """

    verbose: bool = False
    width: int = DEFAULT_WIDTH
    color: bool = False


USUAL_LOOK: Final = Look()

_REPORTS: dict[Form, Callable[[Report, Look], str]] = {
    Form.TEXT: lambda found, look: render_text(found, verbose=look.verbose, width=look.width, color=look.color),
    Form.JSON: lambda found, _: to_json(found),
    Form.MARKDOWN: lambda found, _: to_markdown(found),
    Form.HTML: lambda found, _: report_page(found),
}

_COMPARISONS: dict[Form, Callable[[Comparison, Look], str]] = {
    Form.TEXT: lambda found, look: render_comparison(found, verbose=look.verbose, width=look.width, color=look.color),
    Form.JSON: lambda found, _: comparison_to_json(found),
    Form.MARKDOWN: lambda found, _: comparison_to_markdown(found),
    Form.HTML: lambda found, _: comparison_page(found),
}


def written(found: Report | Comparison, form: Form, look: Look = USUAL_LOOK) -> str:
    """Return a report or a comparison in a form."""
    return _REPORTS[form](found, look) if isinstance(found, Report) else _COMPARISONS[form](found, look)
