"""The report as one page: everything is in the file, nothing is fetched, and it can be read without its script."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from qtool.report.html.markup import Markup, element, joined
from qtool.report.html.nodes import node_table
from qtool.report.html.saturation import saturation
from qtool.report.html.sections import findings, grouped, headline, sizes, summary

if TYPE_CHECKING:
    from qtool.inspection.codes import Finding
    from qtool.inspection.findings import Report

_FOLDER: Final = "qtool.report.html"


def report_page(report: Report) -> str:
    """Return the page of one report.

    Text from the file is escaped, and a Content-Security-Policy names the digests of the one style and the one script:
    a browser runs nothing else in it, and asks for nothing.
    """
    body = [
        headline(report),
        summary(report),
        findings(grouped(report)),
        saturation(report.nodes),
        sizes(report),
        _nodes(report),
    ]
    return page(report.name, body)


def page(title: str, body: list[Markup]) -> str:
    """Return a page with this title and body, its style and its script."""
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} - qtool inspect"),
        Markup(f"<style>{style}</style>"),
    )
    end = element("body", element("main", *body), Markup(f"<script>{script}</script>"))
    return f"<!doctype html>\n{element('html', head, end, lang='en')}\n"


def _own(name: str) -> str:
    return files(_FOLDER).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _nodes(report: Report) -> Markup:
    if not report.nodes:
        return Markup()
    named: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.node is not None:
            named.setdefault(finding.node, []).append(finding)
    controls = element(
        "p",
        element("label", "Filter ", element("input", type="search", id="filter", placeholder="name, op, dtype, code")),
        element("output", id="shown"),
        id="controls",
        hidden=True,
    )
    return joined(
        element(
            "section",
            element("h2", "Nodes"),
            controls,
            node_table(report.nodes, named),
            class_="nodes",
        )
    )
