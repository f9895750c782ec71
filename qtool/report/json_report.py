"""The report on a file as JSON, for programs: version 2, described in docs/report.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from qtool.inspection.codes import Severity
from qtool.inspection.margins import margins_of
from qtool.readers.facts import Compute
from qtool.report.json_values import json_value

if TYPE_CHECKING:
    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport

REPORT_VERSION = 2
"""Rises when a key changes its meaning or goes away; a new key does not raise it."""


def to_json(report: Report) -> str:
    """Return the report as JSON: sorted keys, ASCII, so text from strangers cannot act on a terminal."""
    return json_text(report_document(report))


def json_text(document: dict[str, Any]) -> str:
    """Return a document as all reports are written."""
    return json.dumps(document, sort_keys=True, allow_nan=False, indent=2) + "\n"


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "report_version": REPORT_VERSION,
        "outcome": report.outcome.value,
        "file": file_document(report),
        "target": json_value(report.target),
        "stamp": json_value(report.stamp),
        "is_recovered": report.is_recovered,
        "summary": _summary(report),
        "nodes": [node_document(node) for node in report.nodes],
        "num_findings": {severity.value: report.count(severity) for severity in Severity},
        "findings": json_value(report.findings),
    }


def file_document(report: Report) -> dict[str, Any]:
    """Return what is known of the file as a whole."""
    return {
        "name": report.name,
        "kind": report.kind.value,
        "form": report.form,
        "producer": report.producer,
        "num_bytes": report.num_bytes,
        "num_tensors": report.num_tensors,
        "bytes_by_dtype": dict(report.bytes_by_dtype),
        "float_bytes": report.float_bytes,
        "wasted_bytes": sum(each.wasted_bytes for each in report.duplicates),
        "duplicates": json_value(report.duplicates),
        "not_understood": list(report.not_understood),
        "content": report.content.value,
    }


def node_document(node: NodeReport) -> dict[str, Any]:
    """Return a node with all that is known of it, and what its sums reach on each backend."""
    tensors = [{**json_value(each), "granularity": each.granularity} for each in node.tensors]
    return {**json_value(node), "tensors": tensors, "saturation": json_value(margins_of(node))}


def _summary(report: Report) -> dict[str, Any]:
    summary = report.range_summary()
    return {
        "num_nodes": len(report.nodes),
        "num_quantized": sum(node.is_quantized for node in report.nodes),
        "num_by_compute": {each.value: sum(node.compute is each for node in report.nodes) for each in Compute},
        "float_islands": dict(report.float_islands()),
        "reduced_nodes": list(summary.reduced),
        "range": summary.text(),
    }
