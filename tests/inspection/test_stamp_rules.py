"""A stamp is compared with the file: of a file made by hand that is as its stamp says, and of others."""

import dataclasses

import numpy as np
import pytest

from qtool.inspection.codes import Severity
from qtool.inspection.findings import Outcome
from qtool.inspection.nodes import Origin
from qtool.readers.facts import Compute, FileKind, Operand, Role
from qtool.saturation.verdict import Bound
from qtool.types import Isa, Op, Stage
from tests.inspection.hand_made import HandMade, codes_of, inspected, quantization
from tests.readers.sample_files import sample_plan, sample_stamp, weight_codes

ONE, MANY = (0.0234375,), (0.001, 0.0025, 0.004, 0.0055)
AS_FLOAT32 = tuple(float(np.float32(scale)) for scale in MANY)
OPS = {"stem": Op.CONV2D, "depth": Op.CONV2D, "head": Op.LINEAR}


def stamp(*, safe=frozenset(OPS), reduced=frozenset(), stage=Stage.CONVERTED, **fields):
    """The sample's stamp, for a backend whose kernels can saturate: all weights are safe, unless asked otherwise."""
    plan = sample_plan(backend="onednn", isa=Isa.ANY, reduced=reduced, **fields)
    return sample_stamp(plan, safe=safe, stage=stage)


def matching(*, codes=None, reads=(0, 255), scale=AS_FLOAT32, zero_point=12.0, compute=Compute.STATIC, ops=OPS):
    """A file that holds what the stamp says, but for what is given."""
    made = HandMade()
    for name, values in (codes or weight_codes(safe=frozenset(OPS))).items():
        weight = made.store(f"{name}.w", values if ops[name] is Op.LINEAR else values.reshape(4, 1, 3, 3))
        told = ("int8", -128, 127)
        read = quantization(("uint8", *reads), ONE, zero_point=(zero_point,))
        out = quantization(("uint8", 0, 255), ONE, zero_point=(12.0,))
        operands = (
            Operand(role=Role.INPUT, name="x", quantization=read),
            Operand(role=Role.WEIGHT, name="w", tensor=weight, quantization=quantization(told, scale, axis=0)),
            Operand(role=Role.OUTPUT, name="y", quantization=out),
        )
        made.node(name, ops[name], *operands, compute=compute, groups=4 if name == "depth" else 1)
    return made


def contradictions(made, monkeypatch, said=None, **facts):
    facts = {"kind": FileKind.PT2} | facts
    report = inspected(made, monkeypatch, stamp=said or stamp(), **facts)
    return [(each.node, each.message) for each in report.findings if each.code == "QT211"]


def test_a_stamp_that_is_right_is_no_finding(monkeypatch):
    assert contradictions(matching(), monkeypatch) == []
    report = inspected(matching(), monkeypatch, stamp=stamp(), kind=FileKind.PT2)
    assert {node.bounds_origin for node in report.nodes if node.multiplies_codes} == {Origin.DERIVED}


def test_a_stamp_that_calls_weights_safe_is_not_believed(monkeypatch):
    """The weights are the file's: 255 * (100 + 100) leaves int16, whatever the stamp says."""
    made = matching(codes=weight_codes())
    report = inspected(made, monkeypatch, stamp=stamp(), asked={"isa": "no-vnni"}, kind=FileKind.PT2)
    assert report.outcome is Outcome.FINDINGS
    errors = [each.code for each in report.findings if each.node == "head" and each.severity is Severity.ERROR]
    assert errors == ["QT211", "QT211", "QT211", "QT303"]  # one contradiction for each pairing
    first = next(each for each in report.findings if each.code == "QT211" and each.node == "head")
    assert first.message == "pair sums (any) are stamped as 5100 (0 channels), and reach 51000 (4 channels)"


def test_a_node_without_readable_weights_keeps_what_its_stamp_says(monkeypatch):
    report = inspected(HandMade(), monkeypatch, stamp=stamp(), kind=FileKind.PT2)
    (head,) = [node for node in report.nodes if node.name == "head"]
    assert head.bounds[0] == Bound(pairing="any", num_channels=0, worst_pair_sum=5100)
    assert head.bounds_origin is Origin.STAMPED


def test_other_scales_and_zero_points(monkeypatch):
    changed = contradictions(matching(scale=(0.001, 0.0025, 0.004, 0.0056)), monkeypatch)
    assert changed[0] == ("stem", "scales or zero points of stem.weight are not the stamped ones")
    assert len(changed) == 3
    moved = contradictions(matching(zero_point=13.0), monkeypatch)
    assert moved[0] == ("stem", "scales or zero points of x are not the stamped ones")


def test_codes_that_the_stamp_excludes(monkeypatch):
    codes = weight_codes(safe=frozenset(OPS))
    codes["head"][0, 0] = -128
    found = contradictions(matching(codes=codes), monkeypatch)
    assert ("head", "head.weight is stamped as -127..127, and has codes -128..10") in found


@pytest.mark.parametrize("kind", [FileKind.PT2, FileKind.ONNX])
def test_a_range_that_the_graph_does_not_keep(kind, monkeypatch):
    """Stamped as 0..127, and nothing clamps there: the file is judged by what can occur."""
    said = stamp(reduced=frozenset(OPS), safe=frozenset())
    made = matching(codes=weight_codes())
    found = contradictions(made, monkeypatch, said, kind=kind)
    assert found[0] == ("stem", "its input's codes are stamped as 0..127, and can be 0..255")
    report = inspected(made, monkeypatch, stamp=said, kind=kind)
    assert ("QT303", "head") in {(each.code, each.node) for each in report.findings}
    assert contradictions(matching(codes=weight_codes(), reads=(0, 127)), monkeypatch, said, kind=kind) == []


def test_a_format_that_clamps_in_code_is_believed_about_ranges(monkeypatch):
    said = stamp(reduced=frozenset(OPS), safe=frozenset())
    assert contradictions(matching(codes=weight_codes()), monkeypatch, said, kind=FileKind.TORCHSCRIPT) == []


def test_int8_that_computes_in_float(monkeypatch):
    found = contradictions(matching(compute=Compute.FLOAT), monkeypatch)
    assert found == [(name, "it is stamped as int8, and computes in float") for name in OPS]
    prepared = stamp(stage=Stage.PREPARED)
    assert contradictions(matching(compute=Compute.FAKE_QUANTIZED), monkeypatch, prepared) == []


def test_float_that_computes_on_codes(monkeypatch):
    made = matching()
    made.node("act", None, compute=Compute.STATIC)
    assert contradictions(made, monkeypatch) == [("act", "it is stamped as float, and computes on codes")]


def test_another_kind_of_op(monkeypatch):
    assert contradictions(matching(ops=OPS | {"head": Op.CONV2D}), monkeypatch)[0] == (
        "head",
        "it is stamped as linear, and is conv2d",
    )


def test_nodes_that_the_stamp_does_not_name(monkeypatch):
    made = matching()
    made.layer("more", np.int8([[1, 2, 3, 4]]))
    report = inspected(made, monkeypatch, stamp=stamp(), kind=FileKind.PT2)
    assert [(each.code, each.node) for each in report.findings if each.code == "QT209"] == [("QT209", "more")]
    assert report.nodes[-1].origin is Origin.UNKNOWN
    assert report.outcome is Outcome.FINDINGS


def test_what_only_the_stamp_knows_stays(monkeypatch):
    report = inspected(matching(), monkeypatch, stamp=stamp(), kind=FileKind.PT2)
    stem = report.nodes[0]
    weight = stem.tensor(Role.WEIGHT)
    assert (stem.backends, stem.activation, stem.reduce_range) == (("onednn",), "relu6", False)
    assert (weight.name, weight.qmin, weight.shape, weight.num_scales) == ("stem.weight", -127, (4, 1, 3, 3), 4)
    assert codes_of(report)[:1] != ["QT201"]


def test_a_stamp_of_other_ranges_for_the_same_file_is_found(monkeypatch):
    """A stamp copied from a twin: all digests differ."""
    other = stamp()
    nodes = tuple(
        dataclasses.replace(node, weight=dataclasses.replace(node.weight, digest="0" * 64)) if node.weight else node
        for node in other.nodes
    )
    found = contradictions(matching(), monkeypatch, dataclasses.replace(other, nodes=nodes))
    assert {node for node, _ in found} == set(OPS)
