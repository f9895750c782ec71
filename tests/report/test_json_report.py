import json
import math
import re
from pathlib import Path

import pytest

from qtool.inspection.codes import Severity
from qtool.inspection.compare import compared
from qtool.inspection.inspect import inspect_file
from qtool.report.comparison_json import COMPARISON_VERSION, comparison_to_json
from qtool.report.json_report import REPORT_VERSION, report_document, to_json
from qtool.report.json_values import json_value
from qtool.stamp.schema import from_json
from qtool.types import Isa
from tests.readers.sample_files import sample_file, zip_bytes
from tests.report.sample_reports import quantized_node, sample_nodes, sample_report

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
WORDS = set(re.findall(r"`([a-z_0-9.]+)`", PAGE))
FREE_KEYS = {"stamp", "file.bytes_by_dtype", "summary.float_islands", "summary.num_by_compute"}


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
        "num_quantized": 3,
        "num_by_compute": {"static": 3, "dynamic": 0, "weight_only": 0, "fake_quantized": 0, "float": 1},
        "float_islands": {"silu has no int8 kernel": 1},
        "reduced_nodes": ["stem"],
        "range": "mixed: 1 of 3 convolutions and linears reduced",
    }
    assert document["num_findings"] == {"error": 0, "warning": 0, "info": 1}
    [finding] = document["findings"]
    assert (finding["code"], finding["severity"], finding["node"]) == ("QT304", "info", "head")
    assert set(finding) == {"code", "severity", "node", "message", "remedy"}


def test_a_node_tells_its_tensors_and_what_its_sums_reach(document):
    nodes = {node["name"]: node for node in document["nodes"]}
    assert list(nodes) == ["stem", "depth", "act", "head"]
    weight = next(tensor for tensor in nodes["stem"]["tensors"] if tensor["role"] == "weight")
    assert (weight["dtype"], weight["granularity"], weight["axis"]) == ("int8", "channel", 0)
    sums = {each["backend"]: (each["sums"], each["worst_pair_sum"]) for each in nodes["head"]["saturation"]}
    assert sums["onednn"] == ("proved_safe", 5100)
    assert sums["qnnpack"] == ("exact", None)
    assert nodes["act"]["saturation"] == []


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


def test_numbers_that_json_lacks_are_words():
    assert json_value((Severity.ERROR, math.nan, math.inf, -math.inf, 0.5, True, None)) == [
        "error", "NaN", "Infinity", "-Infinity", 0.5, True, None,
    ]  # fmt: skip
    broken = quantized_node(0, name="broken")
    scales = [{**vars(tensor), "scale_max": math.nan} for tensor in broken.tensors]
    nodes = (quantized_node(0, tensors=tuple(type(broken.tensors[0])(**each) for each in scales)),)
    document = json.loads(to_json(sample_report(nodes)), parse_constant=pytest.fail)
    assert document["nodes"][0]["tensors"][0]["scale_max"] == "NaN"


def keys_of(value, path=""):
    """Yield the path of every key, lists left out, and nothing below what has keys of its own."""
    if isinstance(value, list):
        for each in value:
            yield from keys_of(each, path)
    elif isinstance(value, dict) and path not in FREE_KEYS:
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner
            yield from keys_of(each, inner)


def test_the_page_names_every_key_and_the_version(document):
    assert f'"report_version": {REPORT_VERSION}' in PAGE
    by_hand = json.loads(to_json(sample_report()))
    keys = {*keys_of(document), *keys_of(by_hand)}
    assert {"nodes.tensors.values.counts", "file.duplicates.wasted_bytes"} <= keys
    assert keys - WORDS == set()


def test_the_page_names_every_key_of_a_comparison():
    assert f'"comparison_version": {COMPARISON_VERSION}' in PAGE
    nodes = sample_nodes()
    after = sample_report((quantized_node(0, name="stem", qmax=127), *nodes[1:3], quantized_node(9)), findings=())
    document = json.loads(comparison_to_json(compared(sample_report(), after)))
    inner = (
        "first",
        "second",
        "nodes.added",
        "nodes.removed",
        "nodes.changed.changes",
        "findings.came",
        "findings.went",
    )
    keys = {key for key in keys_of(document) if not key.startswith(tuple(f"{each}." for each in inner))}
    assert keys - WORDS == set()
    assert {change["what"] for change in document["nodes"]["changed"][0]["changes"]} >= {"input range", "reduced range"}
