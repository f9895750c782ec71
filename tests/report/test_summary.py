import dataclasses
import math

import pytest

from qtool.inspection.codes import Finding, Severity
from qtool.readers.facts import Compute, Role
from qtool.report.chosen_nodes import nodes_that_matter
from qtool.report.finding_groups import finding_groups
from qtool.report.node_words import compute_words, pattern_words, saturation_words, stored_bytes, stored_dtype
from qtool.report.quantities import count_words, share_words, size_words, span_words
from qtool.report.summary import fact_rows, saturation_line
from tests.report.sample_reports import float_node, large_report, quantized_node, sample_nodes, sample_report


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (18_870_000, "18.87 MB")],
)
def test_sizes(num_bytes, words):
    assert size_words(num_bytes) == words


def test_numbers_in_words():
    assert [share_words(part, 1000) for part in (0, 1, 5, 250, 1000)] == ["0 %", "<1 %", "<1 %", "25 %", "100 %"]
    assert (share_words(1, 0), share_words(999, 1000), share_words(99, 100)) == ("0 %", ">99 %", "99 %")
    assert span_words(math.nan, 1.0) == "nan..1"
    assert [count_words(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_the_facts_of_a_file():
    rows = fact_rows(sample_report())
    assert rows["quantized"] == "5 of 7 nodes: 4 static, 1 dynamic"
    assert rows["left float"] == "1 x silu has no int8 kernel; 1 x softmax is left float by the config"
    assert rows["against float"] == "412.3 kB of 1.64 MB in float32, 25 %"
    assert rows["saturation"].startswith("without VNNI 1 of 4 layers can leave int16; stem reaches 41200 of 32767")


def test_nothing_is_claimed_where_nothing_is_known():
    rows = fact_rows(
        sample_report((), bytes_by_dtype=(), float_bytes=0, duplicates=(), not_understood=(), producer=None)
    )
    assert list(rows) == ["file"]
    bare = tuple(dataclasses.replace(node, bounds=()) for node in sample_nodes())
    assert saturation_line(bare) == ""
    assert saturation_words(bare[0]) == "full range, and the weights are not known to be safe"


def test_a_backend_that_adds_in_int32_is_said_to_be_exact():
    nodes = tuple(quantized_node(index, backends=("qnnpack",)) for index in range(3))
    assert saturation_line(nodes) == "no kernel of 3 layers adds in int16"
    assert saturation_words(nodes[0]) == ""


def test_a_reduced_range_needs_no_weights_to_be_exact():
    nodes = tuple(quantized_node(index, qmax=127, bounds=()) for index in range(3))
    assert saturation_line(nodes) == "none of 3 layers can leave int16: their input codes are too small"


def test_without_a_backend_the_worst_counts():
    assert saturation_words(quantized_node(0, backends=(), worst=30000)) == (
        "4 channels can leave int16, worst pair sum 36000"
    )


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (Compute.STATIC, "int8"),
        (Compute.DYNAMIC, "int8 dynamic"),
        (Compute.WEIGHT_ONLY, "int8 weights"),
        (Compute.FAKE_QUANTIZED, "fake-quantized"),
        (Compute.FLOAT, "float"),
    ],
)
def test_how_a_node_computes(compute, words):
    assert compute_words(quantized_node(0, compute=compute)) == words


def test_weights_of_other_widths_are_named():
    node = quantized_node(0, compute=Compute.WEIGHT_ONLY)
    weight = node.tensor(Role.WEIGHT)
    four = dataclasses.replace(node, tensors=(dataclasses.replace(weight, dtype="uint4"),))
    half = dataclasses.replace(node, tensors=(dataclasses.replace(weight, dtype="float16", is_quantized=False),))
    assert (compute_words(four), compute_words(half)) == ("int4 weights", "float16 weights")
    assert stored_dtype(weight) == "int8"
    assert stored_dtype(dataclasses.replace(weight, num_bytes=4 * weight.num_bytes)) == "float32"
    assert pattern_words(quantized_node(0, depthwise=True)) == "depthwise conv2d + relu6"
    assert stored_bytes(quantized_node(0)) == 32 * 16 * 9 + 4 * 32


def test_the_nodes_that_matter():
    names = [node.name for node in nodes_that_matter(sample_report())]
    assert names == ["stem", "features.2.0", "act", "head.softmax", "classifier"]
    assert nodes_that_matter(sample_report(large_report(9).nodes, findings=())) == ()
    floats = tuple(float_node(f"f{index}", "") for index in range(3))
    assert nodes_that_matter(sample_report(floats, findings=())) == ()


def test_findings_of_one_code_stand_together_and_of_one_message_on_one_line():
    def finding(code, node, message):
        return Finding(code=code, severity=Severity.ERROR, node=node, message=message, remedy="none")

    found = [finding("QT1", "a", "x"), finding("QT2", None, "y"), finding("QT1", "b", "x"), finding("QT1", "a", "z")]
    first, second = finding_groups(found)
    assert (first.code, first.lines, first.num_nodes) == ("QT1", (("x", ("a", "b")), ("z", ("a",))), 3)
    assert (second.code, second.lines, second.num_nodes) == ("QT2", (("y", ()),), 0)
