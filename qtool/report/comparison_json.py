"""A comparison of two files as JSON, for programs: version 1, described in docs/report.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtool.report.json_report import file_document, json_text, node_document
from qtool.report.json_values import json_value

if TYPE_CHECKING:
    from qtool.inspection.compare import Comparison

COMPARISON_VERSION = 1
"""Rises when a key changes its meaning or goes away; a new key does not raise it."""


def comparison_to_json(comparison: Comparison) -> str:
    """Return a comparison as JSON: sorted keys, ASCII."""
    return json_text(comparison_document(comparison))


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON values."""
    return {
        "comparison_version": COMPARISON_VERSION,
        "sameness": comparison.sameness.value,
        "is_same_content": comparison.is_same_content,
        "first": file_document(comparison.first),
        "second": file_document(comparison.second),
        "facts": json_value(comparison.facts),
        "nodes": {
            "added": [node_document(node) for node in comparison.added],
            "removed": [node_document(node) for node in comparison.removed],
            "changed": json_value(comparison.changed),
            "num_same": comparison.num_same,
        },
        "tensors": list(comparison.tensors),
        "findings": {"came": json_value(comparison.came), "went": json_value(comparison.went)},
        "not_compared": list(comparison.not_compared),
    }
