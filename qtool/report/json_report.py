"""The report on a file as JSON, for programs: schema 1, described in docs/report.md."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from qtool.inspection.codes import Severity

if TYPE_CHECKING:
    from qtool.inspection.findings import Report

REPORT_VERSION = 1
"""Rises when a key changes its meaning or goes away; a new key does not raise it."""


def to_json(report: Report) -> str:
    """Return the report as JSON: sorted keys, ASCII, so text from strangers cannot act on a terminal."""
    return json.dumps(report_document(report), sort_keys=True, allow_nan=False, indent=2) + "\n"


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    summary = report.range_summary()
    return {
        "report_version": REPORT_VERSION,
        "outcome": report.outcome.value,
        "file": {
            "name": report.name,
            "kind": report.kind.value,
            "num_bytes": report.num_bytes,
            "bytes_by_dtype": dict(report.bytes_by_dtype),
            "content": report.content.value,
        },
        "target": dataclasses.asdict(report.target),
        "stamp": None if report.stamp is None else dataclasses.asdict(report.stamp),
        "is_recovered": report.is_recovered,
        "summary": {
            "num_nodes": len(report.stamp.nodes) if report.stamp else 0,
            "num_int8": len(report.int8_nodes()),
            "float_islands": dict(report.float_islands()),
            "reduced_nodes": list(summary.reduced),
            "range": summary.text(),
        },
        "num_findings": {severity.value: report.count(severity) for severity in Severity},
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
    }
