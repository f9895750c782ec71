"""The forms in which a report, or a comparison of two files, can be written."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.inspection.findings import Report
from qtool.report.look import USUAL_LOOK

if TYPE_CHECKING:
    from qtool.inspection.compare import Comparison
    from qtool.report.look import Look


class Form(StrEnum):
    """A form: TEXT for people at a terminal, JSON for programs, MARKDOWN for comments, HTML for a browser."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def written(found: Report | Comparison, form: Form, look: Look = USUAL_LOOK) -> str:
    """Return a report or a comparison in a form; who writes the others is not imported."""
    return _report(found, form, look) if isinstance(found, Report) else _comparison(found, form, look)


def _report(found: Report, form: Form, look: Look) -> str:
    if form is Form.JSON:
        from qtool.report.json_report import to_json

        return to_json(found)
    if form is Form.MARKDOWN:
        from qtool.report.markdown import to_markdown

        return to_markdown(found)
    if form is Form.HTML:
        from qtool.report.html.page import report_page

        return report_page(found)
    from qtool.report.text import render_text

    return render_text(found, verbose=look.verbose, width=look.width, color=look.color)


def _comparison(found: Comparison, form: Form, look: Look) -> str:
    if form is Form.JSON:
        from qtool.report.comparison_json import comparison_to_json

        return comparison_to_json(found)
    if form is Form.MARKDOWN:
        from qtool.report.comparison_markdown import comparison_to_markdown

        return comparison_to_markdown(found)
    if form is Form.HTML:
        from qtool.report.html.comparison import comparison_page

        return comparison_page(found)
    from qtool.report.comparison_text import render_comparison

    return render_comparison(found, verbose=look.verbose, width=look.width, color=look.color)
