"""Rules on files of strangers, and on this machine; those on stamped nodes are in test_inspect.py."""

import numpy as np
import pytest

from qtool.backends.host import host_facts
from qtool.errors import UsageError
from qtool.inspection.findings import Outcome
from qtool.inspection.inspect import inspect_file
from qtool.inspection.nodes import Origin
from qtool.readers.facts import FileKind, Role
from qtool.types import Isa, Op
from tests.inspection.hand_made import INT8, UINT8, HandMade, inspected, random_codes
from tests.readers.sample_files import sample_file

LARGE = np.int8([[100, 100, 3, 3]])


def of_layers(monkeypatch, layers, **asked):
    made = HandMade()
    for name, (codes, fields) in layers.items():
        made.layer(name, codes, **fields)
    return inspected(made, monkeypatch, asked=asked)


def pairs(report, family="QT3"):
    return [(each.code, each.node) for each in report.findings if each.code.startswith(family)]


def test_case_05_a_file_of_a_stranger_is_judged_for_what_is_asked(monkeypatch):
    layers = {"fc": (LARGE, {}), "small": (LARGE // 10, {}), "reduced": (LARGE, {"reads": ("uint8", 0, 127)})}
    report = of_layers(monkeypatch, layers, backend="onednn")
    assert pairs(report) == [("QT303", "fc"), ("QT304", "small")]
    assert "worst sum 51000" in report.findings[1].message
    assert pairs(of_layers(monkeypatch, layers, backend="onednn", isa="vnni")) == [("QT305", "reduced")]
    assert pairs(of_layers(monkeypatch, layers, backend="qnnpack")) == [("QT305", "reduced")]


def test_case_05_without_a_target_the_bounds_are_facts_and_the_outcome_is_unknown(monkeypatch):
    report = of_layers(monkeypatch, {"fc": (LARGE, {})})
    assert report.outcome is Outcome.UNKNOWN
    assert pairs(report) == []
    (node,) = report.nodes
    assert (node.origin, node.bounds_origin) == (Origin.UNKNOWN, Origin.DERIVED)
    assert [bound.worst_pair_sum for bound in node.bounds] == [51000, 51000, 51000]


def test_case_01_a_file_of_a_stranger_is_never_ok_whatever_it_fits(monkeypatch):
    report = of_layers(monkeypatch, {"fc": (LARGE // 10, {})}, backend="qnnpack")
    assert pairs(report) == []
    assert report.outcome is Outcome.UNKNOWN
    assert [each.code for each in report.findings] == ["QT201"]


def test_a_dtype_that_the_backend_does_not_take(monkeypatch):
    layers = {"fc": (LARGE, {"reads": INT8})}
    report = of_layers(monkeypatch, layers, backend="qnnpack")
    assert [each.message for each in report.findings if each.code == "QT307"] == ["fc.x is int8, qnnpack takes uint8"]


def test_scales_of_groups_are_no_granularity_of_these_backends(monkeypatch):
    made = HandMade()
    made.layer("fc", random_codes((4, 8)), scale=(0.1,) * 8, axis=1)
    weight = made.nodes[0].operand(Role.WEIGHT)
    object.__setattr__(weight.quantization, "group_size", 4)
    report = inspected(made, monkeypatch, asked={"backend": "fbgemm"})
    assert ("QT306", "fc") in pairs(report)


@pytest.mark.parametrize(("output_scale", "is_large"), [(0.112, True), (0.125, False)])
def test_case_03_a_multiplier_of_1_or_more_on_qnnpack(output_scale, is_large, monkeypatch):
    """0.052 * 2.39 / 0.112 = 1.11."""
    fields = {"op": Op.CONV2D, "input_scale": 0.052, "scale": 2.39, "output_scale": output_scale}
    layers = {"conv": (random_codes((2, 4, 2, 2)), fields)}
    report = of_layers(monkeypatch, layers, backend="qnnpack")
    assert pairs(report) == ([("QT310", "conv")] if is_large else [])
    assert pairs(of_layers(monkeypatch, layers, backend="fbgemm", isa="vnni")) == []


def test_case_03_the_number_is_in_the_finding(monkeypatch):
    fields = {"op": Op.CONV2D, "input_scale": 0.052, "scale": 2.39, "output_scale": 0.112}
    report = of_layers(monkeypatch, {"conv": (random_codes((2, 4, 2, 2)), fields)}, backend="qnnpack")
    (finding,) = [each for each in report.findings if each.code == "QT310"]
    assert finding.message == "input scale * weight scale / output scale is 1.11"


@pytest.mark.parametrize(
    ("shape", "op", "groups", "backend", "is_wrong"),
    [
        ((16, 8, 2, 2), Op.CONV_TRANSPOSE2D, 1, "fbgemm", True),
        ((16, 8, 3, 3), Op.CONV_TRANSPOSE2D, 1, "fbgemm", False),
        ((16, 8, 2, 2), Op.CONV_TRANSPOSE2D, 1, "qnnpack", False),
        ((20, 4, 3, 3), Op.CONV2D, 5, "fbgemm", True),
        ((32, 4, 3, 3), Op.CONV2D, 8, "fbgemm", False),
        ((20, 4, 3, 3), Op.CONV2D, None, "fbgemm", False),
    ],
)
def test_geometries_that_a_kernel_is_wrong_for(shape, op, groups, backend, is_wrong, monkeypatch):
    layers = {"conv": (random_codes(shape), {"op": op, "groups": groups})}
    report = of_layers(monkeypatch, layers, backend=backend, isa="vnni")
    assert (("QT311", "conv") in pairs(report)) == is_wrong


def machine(tmp_path, monkeypatch, *, flags="avx2 avx_vnni", architecture="x86_64", torch_version="2.14.1"):
    monkeypatch.setattr("qtool.backends.host._torch_version", lambda: torch_version)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags\t\t: {flags}\n")
    return host_facts(cpuinfo=cpuinfo, environment={}, architecture=architecture)


def codes_of_sample(**asked):
    return sorted({each.code for each in inspect_file(sample_file(), **asked).findings})


def test_engines_that_this_machine_has_not(tmp_path, monkeypatch):
    arm = machine(tmp_path, monkeypatch, architecture="aarch64")
    assert codes_of_sample(host=arm, on_host=True) == ["QT309"]
    assert codes_of_sample(host=arm) == []
    assert codes_of_sample(host=machine(tmp_path, monkeypatch, torch_version=None), on_host=True) == ["QT309"]
    assert codes_of_sample(host=machine(tmp_path, monkeypatch, architecture="riscv64"), on_host=True) == ["QT309"]
    assert codes_of_sample(host=machine(tmp_path, monkeypatch), on_host=True) == []


def test_an_engine_that_is_asked_for_must_be_here(tmp_path, monkeypatch):
    arm = machine(tmp_path, monkeypatch, architecture="aarch64")
    assert codes_of_sample(host=arm, engine="fbgemm") == ["QT309"]
    assert codes_of_sample(host=arm, engine="qnnpack") == ["QT301", "QT305"]
    assert codes_of_sample(host=arm, backend="fbgemm") == []


@pytest.mark.parametrize(("flags", "codes"), [("avx2", ["QT303"]), ("avx2 avx_vnni", [])])
def test_the_cpu_of_this_machine_counts_with_host(flags, codes, tmp_path, monkeypatch):
    data = sample_file(backend="onednn", isa=Isa.VNNI, reduced=frozenset())
    host = machine(tmp_path, monkeypatch, flags=flags)
    report = inspect_file(data, host=host, on_host=True)
    assert sorted({each.code for each in report.findings}) == codes
    assert (report.target.isa, report.target.is_asked) == (Isa.NO_VNNI if codes else Isa.VNNI, True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"backend": "fbgemm", "engine": "fbgemm"}, "ask for one of them"),
        ({"isa": "vnni", "on_host": True}, "ask for one of them"),
        ({"engine": "fbgem"}, "did you mean 'fbgemm'"),
        ({"engine": "onnxruntime"}, "not in torch"),
        ({"fail_on": "info"}, "fail_on 'info' is not known. Use one of: error, warning"),
    ],
)
def test_words_that_do_not_go_together(asked, message, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=message):
        inspect_file(sample_file(), host=machine(tmp_path, monkeypatch), **asked)


def test_a_machine_that_nobody_looked_at_cannot_be_asked_for():
    with pytest.raises(UsageError, match="nothing is known of this machine"):
        inspect_file(sample_file(), on_host=True)


def test_warnings_count_where_they_are_asked_to():
    data = sample_file(backend="qnnpack", reduced=frozenset({"stem"}))
    report = inspect_file(data, isa="vnni", fail_on="warning")
    assert {each.code for each in report.findings} == {"QT305"}
    assert report.outcome is Outcome.FINDINGS
    assert inspect_file(data, isa="vnni").outcome is Outcome.OK
    assert inspect_file(sample_file(), fail_on="warning").outcome is Outcome.OK


def test_what_was_not_understood_is_told(monkeypatch):
    made = HandMade()
    made.layer("fc", random_codes((4, 4)), reads=UINT8)
    report = inspected(made, monkeypatch, not_understood=("operator com.example::Foo",))
    found = [each.message for each in report.findings if each.code == "QT212"]
    assert found == ["operator com.example::Foo"]


def test_a_float_file_is_not_quantized_and_one_that_was_not_understood_is_unknown(monkeypatch):
    made = HandMade()
    made.store("w", np.ones((8, 8), np.float32))
    report = inspected(made, monkeypatch)
    assert (report.outcome, [each.code for each in report.findings]) == (Outcome.NOT_QUANTIZED, ["QT210"])
    assert inspected(made, monkeypatch, not_understood=("operator Foo",)).outcome is Outcome.UNKNOWN
    assert inspected(HandMade(), monkeypatch, kind=FileKind.ZIP).outcome is Outcome.UNKNOWN
    made.store("switch", np.ones(1, np.uint8))
    assert inspected(made, monkeypatch).outcome is Outcome.NOT_QUANTIZED
    made.store("codes", np.ones((8, 8), np.int8))
    assert inspected(made, monkeypatch).outcome is Outcome.UNKNOWN
