"""Files of every producer: each gives facts that are right, and none a traceback."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from qtool.inspection.inspect import inspect_file
from qtool.readers.facts import Role
from qtool.report.json_report import to_json
from qtool.report.text import render_text
from tests.producers import onnx_files, other_files, torch_files

PRODUCERS = [row for module in (torch_files, onnx_files, other_files) for row in module.PRODUCERS]
ROWS = [pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.slow) for row in PRODUCERS]


@pytest.mark.parametrize("row", ROWS)
def test_what_is_said_of_the_file_is_what_it_is(row, tmp_path):
    path = tmp_path / "model"
    row.make(path)
    report = inspect_file(path)
    assert report.kind is row.kind
    assert re.search(row.producer, report.producer or "")
    assert dict(Counter(node.compute for node in report.nodes if node.tensor(Role.WEIGHT))) == row.nodes
    weights = [node.tensor(Role.WEIGHT) for node in report.nodes if node.is_quantized]
    assert {(weight.dtype, weight.granularity) for weight in weights if weight} == row.weights
    assert render_text(report, verbose=True)
    assert to_json(report)
