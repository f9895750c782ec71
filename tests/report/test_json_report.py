import json
import re
from pathlib import Path

import pytest

from qtool.inspection.inspect import inspect_file
from qtool.report.json_report import REPORT_VERSION, report_document, to_json
from qtool.stamp.schema import from_json
from qtool.types import Isa
from tests.readers.sample_files import sample_file, zip_bytes

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


@pytest.fixture(scope="module")
def document():
    data = sample_file(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"stem"}), safe=["head"])
    return json.loads(to_json(inspect_file(data, isa="no-vnni")))


def test_it_tells_all_that_the_report_tells(document):
    assert (document["report_version"], document["outcome"]) == (REPORT_VERSION, "ok")
    assert document["target"] == {"backend": "onednn", "isa": "no-vnni", "is_asked": True}
    assert document["file"]["bytes_by_dtype"] == {"float32": 16, "int8": 36}
    assert document["file"]["content"] == "verified"
    assert document["summary"] == {
        "num_nodes": 4,
        "num_int8": 3,
        "float_islands": {"silu has no int8 kernel": 1},
        "reduced_nodes": ["stem"],
        "range": "mixed: 1 of 3 convolutions and linears reduced",
    }
    assert document["num_findings"] == {"error": 0, "warning": 0, "info": 1}
    [finding] = document["findings"]
    assert (finding["code"], finding["severity"], finding["node"]) == ("QT304", "info", "head")
    assert set(finding) == {"code", "severity", "node", "message", "remedy"}


def test_the_stamp_in_it_is_the_stamp(document):
    assert from_json(json.dumps(document["stamp"])).backends == ("onednn",)


def test_without_stamp_the_keys_are_the_same():
    document = report_document(inspect_file(zip_bytes({"x": b""})))
    assert (document["outcome"], document["stamp"]) == ("unknown", None)
    assert document["target"] == {"backend": None, "isa": None, "is_asked": False}
    assert set(document) == set(report_document(inspect_file(sample_file())))


def test_the_same_report_is_the_same_text_in_ascii():
    text = to_json(inspect_file(sample_file()))
    assert text == to_json(inspect_file(sample_file()))
    assert text.isascii()
    assert text.endswith("}\n")


def test_the_page_names_every_key_and_the_version(document):
    assert f'"report_version": {REPORT_VERSION}' in PAGE
    keys = set(re.findall(r"`([a-z_0-9.]+)`", PAGE))
    for section in ("file", "target", "summary", "num_findings"):
        assert {f"{section}.{key}" for key in document[section]} <= keys | {f"{section}.bytes_by_dtype"}
    assert {f"findings.{key}" for key in document["findings"][0]} <= keys
    assert set(document) <= keys
