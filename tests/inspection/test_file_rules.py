import dataclasses
import json

import pytest

from qtool.inspection.codes import CODES
from qtool.inspection.file_rules import FILE_RULES, plan_differs
from qtool.inspection.inspect import inspect_file
from qtool.readers.program_risks import Risk, RiskKind
from qtool.readers.qtool_file import read_qtool_file
from qtool.stamp.plan_json import plan_to_json
from qtool.stamp.schema import PLAN_ENTRY, STAMP_ENTRY
from qtool.types import Isa, Stage
from tests.readers.sample_files import file_bytes, sample_file, sample_plan, sample_stamp


def codes_of(data: bytes) -> list[str]:
    return [finding.code for finding in inspect_file(data).findings]


@pytest.mark.parametrize("kind", list(RiskKind))
def test_every_risk_has_a_code(kind):
    file = dataclasses.replace(read_qtool_file(sample_file()), risks=(Risk(kind, "entry", "detail"),))
    [finding] = [finding for rule in FILE_RULES for finding in rule(file)]
    assert finding.code.startswith("QT1")
    assert finding.message == "entry: detail"


def test_a_file_that_would_execute_something_does_not_fit_anything():
    plan = sample_plan()
    data = file_bytes(sample_stamp(plan), plan, changes={"data/sample_inputs/model.pt": b"PK"})
    assert codes_of(data) == ["QT101"]


@pytest.mark.parametrize(
    ("stamp", "code"), [({"format_version": 3}, "QT202"), ({"format_version": 1}, "QT203"), ({}, "QT203")]
)
def test_stamps_that_cannot_be_used(stamp, code):
    plan = sample_plan()
    data = file_bytes(sample_stamp(plan), plan, changes={STAMP_ENTRY: json.dumps(stamp).encode()})
    assert codes_of(data) == [code]
    assert inspect_file(data).outcome == "unknown"


def test_a_content_that_differs_is_an_error():
    data = sample_file()
    file = read_qtool_file(data)
    other = data.replace(b'{"version": 1}', b'{"version": 2}')
    assert codes_of(data) == []
    # The entry's CRC is wrong now, which is found first; a careful change has a right one.
    with pytest.raises(ValueError, match="damaged"):
        inspect_file(other)
    wrong = dataclasses.replace(file, content_digest="0" * 64)
    assert [finding.code for rule in FILE_RULES for finding in rule(wrong)] == ["QT204"]


def test_a_stamp_without_digest_is_not_verified():
    plan = sample_plan()
    file = read_qtool_file(sample_file())
    blank = dataclasses.replace(file, stamp=sample_stamp(plan))
    [finding] = [finding for rule in FILE_RULES for finding in rule(blank)]
    assert (finding.code, "stamped is none" in finding.message) == ("QT204", True)


def test_the_plan_must_be_there_readable_and_of_the_same_nodes():
    plan = sample_plan()
    fewer = dataclasses.replace(plan, nodes=plan.nodes[:2])
    stamp = sample_stamp(plan)
    assert codes_of(file_bytes(stamp, None)) == ["QT205"]
    assert codes_of(file_bytes(stamp, plan, changes={PLAN_ENTRY: b"{"})) == ["QT205"]
    assert codes_of(file_bytes(stamp, plan, changes={PLAN_ENTRY: b"\xff"})) == ["QT205"]
    assert codes_of(file_bytes(stamp, plan, changes={PLAN_ENTRY: plan_to_json(fewer).encode()})) == ["QT205"]


def test_exported_files_need_no_plan():
    stamp = dataclasses.replace(sample_stamp(sample_plan()), stage=Stage.EXPORTED)
    assert codes_of(file_bytes(stamp, None)) == []


def test_a_plan_for_other_verdicts_differs():
    plan = sample_plan()
    swapped = tuple(dataclasses.replace(node, verdict=plan.nodes[2].verdict) for node in plan.nodes)
    file = read_qtool_file(file_bytes(sample_stamp(plan), dataclasses.replace(plan, nodes=swapped)))
    assert [finding.code for finding in plan_differs(file)] == ["QT205"]


def test_nodes_without_scales_are_named():
    plan = sample_plan(backend="qnnpack", isa=Isa.ANY, reduced=frozenset())
    stamp = sample_stamp(plan, stage=Stage.PREPARED, calibrated=False)
    report = inspect_file(file_bytes(stamp, plan))
    assert [(finding.code, finding.node) for finding in report.findings] == [
        ("QT206", "stem"),
        ("QT206", "depth"),
        ("QT206", "head"),
    ]
    assert report.outcome == "ok"


def test_codes_are_unique_and_in_order():
    names = [code.name for code in CODES]
    assert names == sorted(set(names))
