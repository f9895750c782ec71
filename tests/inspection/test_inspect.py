import dataclasses

import pytest

from qtool.backends import registry
from qtool.backends.host import host_facts
from qtool.backends.record import Support
from qtool.errors import FileFormatError, UsageError
from qtool.inspection.codes import Severity
from qtool.inspection.findings import Content, Outcome
from qtool.inspection.inspect import inspect_file
from qtool.types import Dtype, Granularity, Isa, Op, Stage
from tests.readers.sample_files import file_bytes, sample_file, sample_plan, sample_stamp, zip_bytes

NOTHING = frozenset()
ALL = frozenset({"stem", "depth", "head"})


def found(data, **asked):
    return [(finding.code, finding.node) for finding in inspect_file(data, **asked).findings]


def vnni_file(**settings):
    return sample_file(backend="onednn", isa=Isa.VNNI, reduced=NOTHING, **settings)


def test_a_file_that_fits_its_own_target_is_ok():
    report = inspect_file(sample_file())
    assert (report.outcome, report.content, report.findings) == (Outcome.OK, Content.VERIFIED, ())
    assert (report.target.backend, report.target.isa, report.target.is_asked) == ("fbgemm", Isa.ANY, False)
    assert report.float_islands() == (("silu has no int8 kernel", 1),)


@pytest.mark.parametrize("isa", list(Isa))
def test_a_reduced_file_is_right_on_every_cpu(isa):
    report = inspect_file(sample_file(), isa=isa)
    assert report.outcome is Outcome.OK
    assert not report.count(Severity.ERROR)


def test_case_01_a_file_made_for_another_backend_names_the_nodes_that_disagree():
    report = inspect_file(sample_file(backend="qnnpack", reduced=NOTHING), backend="fbgemm")
    assert report.outcome is Outcome.FINDINGS
    other = [finding for finding in report.findings if finding.code == "QT301"]
    assert [finding.node for finding in other] == ["stem", "depth", "head"]
    assert other[0].message == "made for 'qnnpack', asked for 'fbgemm'"
    assert "qtool convert PREPARED --backend fbgemm" in other[0].remedy
    assert [finding.code for finding in report.findings] == ["QT301"] * 3 + ["QT303"] * 3


def test_case_01_a_file_without_stamp_is_unknown_and_never_ok():
    report = inspect_file(file_bytes(None, sample_plan()))
    assert (report.outcome, report.content) == (Outcome.UNKNOWN, Content.UNKNOWN)
    assert [finding.code for finding in report.findings] == ["QT201"]
    assert report.int8_nodes() == ()
    assert inspect_file(zip_bytes({"word/document.xml": b""}), backend="fbgemm").outcome is Outcome.UNKNOWN


def test_case_04_a_mixed_file_says_how_many_nodes_are_reduced():
    report = inspect_file(sample_file(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"stem"})))
    summary = report.range_summary()
    assert summary.text() == "mixed: 1 of 3 convolutions and linears reduced"
    assert summary.reduced == ("stem",)
    assert report.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("reduced", "text"),
    [(NOTHING, "full in all 3 convolutions and linears"), (ALL, "reduced in all 3 convolutions and linears")],
)
def test_the_range_summary_of_an_even_file(reduced, text):
    assert inspect_file(sample_file(reduced=reduced)).range_summary().text() == text


def test_a_vnni_file_without_vnni_names_what_can_saturate_and_what_is_proved_safe():
    data = vnni_file(safe=["head"])
    assert found(data) == []
    # onednn's depthwise kernel is exact
    assert found(data, isa="no-vnni") == [("QT303", "stem"), ("QT304", "head")]
    assert found(data, isa="any") == [("QT303", "stem"), ("QT304", "head")]
    assert inspect_file(vnni_file(safe=ALL), isa="no-vnni").outcome is Outcome.OK


def test_what_can_saturate_says_how_much():
    finding = inspect_file(vnni_file(), isa="no-vnni").findings[0]
    assert "0..255" in finding.message
    assert "onednn's conv2d kernel" in finding.message
    assert "4 output channels" in finding.message
    assert "51000" in finding.message


def test_depthwise_on_fbgemm_saturates_even_with_vnni():
    data = sample_file(backend="fbgemm", isa=Isa.VNNI, reduced=NOTHING)
    assert found(data) == [("QT303", "depth")]
    assert inspect_file(data).findings[0].message.startswith("input codes 0..255, and fbgemm's depthwise conv2d kernel")


@pytest.mark.parametrize("multiplier", [4, None])
def test_depthwise_with_several_channels_a_group_counts_as_the_worse_kernel(multiplier):
    plan = sample_plan(backend="onednn", isa=Isa.VNNI, reduced=NOTHING)
    nodes = tuple(dataclasses.replace(node, channel_multiplier=multiplier) for node in plan.nodes)
    plan = dataclasses.replace(plan, nodes=nodes)
    data = file_bytes(sample_stamp(plan, safe=frozenset({"stem", "head"})), plan)
    assert [node for code, node in found(data, isa="no-vnni") if code == "QT303"] == ["depth"]


def test_a_range_left_full_on_purpose_is_a_finding_on_its_own_target():
    assert found(sample_file(reduced=NOTHING)) == [("QT303", "stem"), ("QT303", "depth"), ("QT303", "head")]


def test_a_reduced_file_on_qnnpack_leaves_accuracy_on_the_table():
    report = inspect_file(sample_file(), backend="qnnpack")
    warnings = [finding for finding in report.findings if finding.code == "QT305"]
    assert [finding.node for finding in warnings] == ["stem", "depth", "head"]
    assert {finding.severity for finding in warnings} == {Severity.WARNING}
    assert [finding.severity for finding in report.findings] == [Severity.ERROR] * 3 + [Severity.WARNING] * 3


def test_a_reduced_range_is_no_finding_on_the_target_that_chose_it():
    assert found(sample_file(backend="qnnpack", reduced=ALL)) == []
    assert found(sample_file(backend="qnnpack", reduced=ALL), isa="any") == []


def test_before_convert_what_can_saturate_is_not_proved():
    plan = sample_plan(reduced=NOTHING)
    report = inspect_file(file_bytes(sample_stamp(plan, stage=Stage.PREPARED), plan))
    assert [finding.code for finding in report.findings] == ["QT303"] * 3
    assert "no weight codes yet" in report.findings[0].message


def test_granularity_and_dtype_the_backend_cannot_do(monkeypatch):
    known = registry.backend("qnnpack")
    rules = tuple(
        dataclasses.replace(rule, granularities=(Granularity.TENSOR,)) if rule.op is Op.LINEAR else rule
        for rule in known.rules
    )
    other = dataclasses.replace(known, rules=rules, activation_dtype=Dtype.INT8)
    monkeypatch.setattr(registry, "BACKENDS", (other,))
    codes = found(sample_file(backend="qnnpack", reduced=NOTHING))
    assert ("QT306", "head") in codes
    assert ("QT306", "stem") not in codes
    assert {node for code, node in codes if code == "QT307"} == {"stem", "depth", "head"}
    assert found(sample_file(backend="qnnpack", reduced=NOTHING, granularity=Granularity.TENSOR))[0][0] == "QT307"


def test_an_op_the_backend_does_not_have(monkeypatch):
    known = registry.backend("qnnpack")
    rules = tuple(
        dataclasses.replace(rule, support=Support.UNSUPPORTED, granularities=()) if rule.op is Op.LINEAR else rule
        for rule in known.rules
    )
    monkeypatch.setattr(registry, "BACKENDS", (dataclasses.replace(known, rules=rules),))
    assert found(sample_file(backend="qnnpack", reduced=NOTHING)) == [("QT302", "head")]


def host(tmp_path, flags, **environment):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags\t\t: {flags}\n")
    return host_facts(cpuinfo=cpuinfo, environment=environment, architecture="x86_64")


@pytest.mark.parametrize(
    ("flags", "environment", "codes"),
    [
        ("avx2 avx_vnni", {}, []),
        ("avx2", {}, [("QT308", "stem")]),
        ("avx2 avx_vnni", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, [("QT308", "stem")]),
    ],
)
def test_this_machine_is_warned_of(flags, environment, codes, tmp_path):
    machine = host(tmp_path, flags, **environment)
    report = inspect_file(vnni_file(safe=["head"]), host=machine)
    assert [(finding.code, finding.node) for finding in report.findings] == codes
    assert report.outcome is Outcome.OK
    assert found(vnni_file(safe=["head"]), isa="no-vnni", host=machine) == [("QT303", "stem"), ("QT304", "head")]


def test_a_machine_that_is_not_known_is_not_warned_of(tmp_path):
    machine = host_facts(cpuinfo=tmp_path / "none", environment={}, architecture="x86_64")
    assert found(vnni_file(safe=["head"]), host=machine) == []


def test_a_backend_that_the_stamp_alone_knows():
    report = inspect_file(sample_file(backend="fbgem"))
    assert [finding.code for finding in report.findings] == ["QT207"]
    assert "did you mean 'fbgemm'" in report.findings[0].message
    assert {code for code, _ in found(sample_file(backend="fbgem"), backend="fbgemm")} == {"QT207", "QT301"}


def test_wrong_names_are_errors_before_the_file_is_opened(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'qnnpack'"):
        inspect_file(tmp_path / "none", backend="qnpack")
    with pytest.raises(UsageError, match="Use one of: any, vnni, no-vnni"):
        inspect_file(tmp_path / "none", isa="avx2")
    with pytest.raises(UsageError, match="No such file"):
        inspect_file(tmp_path / "none")


def test_no_zip_no_report():
    with pytest.raises(FileFormatError, match="not a zip archive"):
        inspect_file(b"ONNX")
