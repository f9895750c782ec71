import dataclasses
import math

import pytest

from qtool.inspection.codes import Severity
from qtool.inspection.compare import Sameness, compared
from qtool.inspection.stored_numbers import StoredNumbers
from qtool.readers.facts import Role
from tests.report.sample_reports import quantized_node, sample_nodes, sample_report

ALL_SAME = StoredNumbers(num_same=5)


def report(nodes=None, **fields):
    return sample_report(nodes, **({"not_understood": ()} | fields))


def changes_of(one, other):
    [change] = compared(report((one,)), report((other,)), numbers=ALL_SAME).changed
    return {each.what: (each.before, each.after) for each in change.changes}


def with_tensor(node, role, **fields):
    tensors = tuple(dataclasses.replace(each, **fields) if each.role is role else each for each in node.tensors)
    return dataclasses.replace(node, tensors=tensors)


def test_a_report_is_equal_to_itself():
    comparison = compared(report(), report(), numbers=ALL_SAME)
    assert comparison.sameness is Sameness.EQUAL
    assert (comparison.num_same, comparison.changed, comparison.facts) == (len(sample_nodes()), (), ())


@pytest.mark.parametrize(
    ("role", "fields", "what", "sides"),
    [
        (Role.WEIGHT, {"scale_max": 0.5, "scale_min": 0.25}, "weight scale", "0.25..0.5"),
        (Role.WEIGHT, {"dtype": "int4"}, "weight dtype", "int4"),
        (Role.WEIGHT, {"axis": 1}, "weight axis", 1),
        (Role.WEIGHT, {"axis": None}, "weight granularity", "tensor"),
        (Role.WEIGHT, {"num_bytes": 1}, "weight bytes", 1),
        (Role.WEIGHT, {"seen_max": 5}, "weight codes seen", "-127..5"),
        (Role.WEIGHT, {"shape": (2, 2)}, "weight shape", "2 x 2"),
        (Role.INPUT, {"qmax": 127}, "input range", "0..127"),
        (Role.INPUT, {"zero_point_min": 3, "zero_point_max": 3}, "input zero point", "3"),
        (Role.OUTPUT, {"scale_min": math.nan, "scale_max": 1.0}, "output scale", "nan..1"),
    ],
)
def test_each_number_of_a_tensor_is_compared(role, fields, what, sides):
    node = quantized_node(0)
    assert changes_of(node, with_tensor(node, role, **fields))[what][1] == sides


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"activation": "relu"}, "activation"),
        ({"backends": ("qnnpack",)}, "backends"),
        ({"reduce_range": True}, "reduced range"),
        ({"groups": 2}, "groups"),
        ({"depthwise": True}, "depthwise"),
        ({"op": None}, "op"),
        ({"bounds": ()}, "worst pair sum, any"),
    ],
)
def test_each_fact_of_a_node_is_compared(fields, what):
    node = quantized_node(0)
    assert what in changes_of(node, dataclasses.replace(node, **fields))


def test_a_histogram_of_other_counts_is_a_change():
    node = quantized_node(0)
    values = node.tensor(Role.WEIGHT).values
    other = dataclasses.replace(values, counts=(*values.counts[1:], values.counts[0] + 1))
    before, after = changes_of(node, with_tensor(node, Role.WEIGHT, values=other))["weight histogram"]
    assert before != after


def test_nan_is_no_change_of_nan():
    node = with_tensor(quantized_node(0), Role.WEIGHT, scale_min=math.nan, scale_max=math.nan)
    assert compared(report((node,)), report((node,)), numbers=ALL_SAME).sameness is Sameness.EQUAL


def test_nodes_that_came_and_went_and_those_that_share_a_name():
    twice = [quantized_node(0, name="a"), quantized_node(1, name="a")]
    comparison = compared(report((*twice, quantized_node(2, name="b"))), report((*twice, quantized_node(3, name="c"))))
    assert [node.name for node in comparison.added] == ["c"]
    assert [node.name for node in comparison.removed] == ["b"]
    assert (comparison.changed, comparison.num_same) == ((), 2)
    assert comparison.sameness is Sameness.DIFFERENT


def test_findings_that_came_and_went():
    found = report().findings
    comparison = compared(report(findings=found[:2]), report(findings=found[1:]), numbers=ALL_SAME)
    assert [finding.code for finding in comparison.went] == ["QT201"]
    assert [finding.code for finding in comparison.came] == [found[2].code, found[3].code]
    elsewhere = dataclasses.replace(found[1], node="elsewhere")
    assert compared(report(findings=found[1:2]), report(findings=(elsewhere,))).came == (elsewhere,)
    assert {finding.severity for finding in comparison.came} == {Severity.WARNING, Severity.INFO}


def test_another_form_of_the_same_model_is_equal_and_is_told():
    other = report(form="QDQ graph", producer="somebody else", num_bytes=1, duplicates=())
    comparison = compared(report(), other, numbers=ALL_SAME)
    assert comparison.sameness is Sameness.EQUAL
    assert {change.what for change in comparison.facts} == {"form", "producer", "size", "wasted bytes"}
    assert not any(change.matters for change in comparison.facts)


def test_what_cannot_be_compared_is_never_equal():
    unknown = compared(report(), report())
    assert unknown.sameness is Sameness.UNKNOWN
    assert unknown.not_compared == ("the stored numbers: no tensor of one is known in the other",)
    empty = compared(report(()), report(()), numbers=ALL_SAME)
    assert (empty.sameness, empty.not_compared) == (Sameness.UNKNOWN, ("neither file has nodes that are known",))
    numbers = StoredNumbers(num_same=5, unknown=(("stem", "weight values"),))
    assert compared(report(), report(), numbers=numbers).not_compared == ("stem: weight values",)
    foreign = report(not_understood=("operator Foo",))
    assert compared(foreign, report(), numbers=ALL_SAME).sameness is Sameness.UNKNOWN
    assert compared(report(()), report(()), is_same_content=True).sameness is Sameness.EQUAL


def test_stored_numbers_that_differ_are_changes_of_their_node_or_of_the_file():
    numbers = StoredNumbers(num_same=5, different=(("stem", "weight values"), ("", "embedding")))
    comparison = compared(report(), report(), numbers=numbers)
    assert comparison.sameness is Sameness.DIFFERENT
    [change] = comparison.changed
    assert (change.name, [each.what for each in change.changes]) == ("stem", ["weight values"])
    assert (comparison.tensors, comparison.facts) == (("embedding",), ())


@pytest.mark.parametrize(
    ("low", "words"),
    [
        (0.1, "0.1"),
        (0.100000001490116, "0.100000001490116"),
        (0.10000000149011612, "0.100000001"),
        (1e300, "1e+300"),
        (3, "3"),
    ],
)
def test_two_numbers_are_never_written_alike(low, words):
    node = quantized_node(0)
    changed = with_tensor(node, Role.INPUT, scale_min=low, scale_max=low)
    assert changes_of(node, changed)["input scale"][1] == words
