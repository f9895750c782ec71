"""Move: a converted model to another backend, exact or refused by name."""

import pytest
import torch
from torch import nn

from qtool.errors import MismatchError, QtoolWarning, UsageError
from qtool.runtime.module import RuntimeModel
from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.inspect import inspect
from qtool.workflows.load import load
from qtool.workflows.move import move
from qtool.workflows.prepare import prepare
from qtool.workflows.save import save
from tests.patterns import conv, up2d

X = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(0))


def converted_for(backend, model=None, isa="any", **quantize):
    torch.manual_seed(1)
    model = model or nn.Sequential(conv(), nn.ReLU(), conv(8, 6), nn.Flatten(), nn.Linear(96, 5))
    prepared = prepare(model.eval(), X, {"target": {"backend": backend, "isa": isa}, "quantize": quantize})
    calibrate(prepared, [X])
    return convert(prepared)


@pytest.mark.parametrize("backend", ["x86", "onednn", "qnnpack", "onnxruntime", "portable", "onednn,qnnpack"])
def test_a_reduced_model_for_fbgemm_moves_anywhere_and_no_number_changes(backend):
    before = converted_for("fbgemm")
    moved = move(before, backend)
    assert torch.equal(moved.model(X), before(X))
    state, kept = moved.model.exported.state_dict, before.exported.state_dict
    assert state.keys() == kept.keys()
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    for node, other in zip(before.stamp.int8_nodes(), moved.model.stamp.int8_nodes(), strict=True):
        assert (node.inputs, node.weight, node.output) == (other.inputs, other.weight, other.output)
    assert (moved.before, moved.num_nodes) == (("fbgemm",), len(before.stamp.int8_nodes()))


def test_the_moved_file_says_so_everywhere_and_the_given_model_does_not():
    before = converted_for("fbgemm")
    moved = from_bytes(to_bytes(move(before, "qnnpack").model))
    assert moved.plan.backends == moved.stamp.backends == ("qnnpack",)
    assert {node.backends for node in moved.stamp.nodes} == {("qnnpack",)}
    assert "fbgemm" not in " ".join(node.reason for node in moved.plan.nodes)
    stamps = [node.meta.get("custom", {}).get("qtool", {}) for node in moved.exported.graph.nodes]
    assert {stamp["backend"] for stamp in stamps if "backend" in stamp} == {"qnnpack"}
    assert before.stamp.backends == ("fbgemm",)
    report = inspect(to_bytes(moved))
    assert {finding.code for finding in report.findings} == set()
    assert RuntimeModel(moved).engine == "qnnpack"


def test_a_moved_model_runs_as_before_on_its_new_engine():
    before = converted_for("fbgemm")
    with pytest.warns(QtoolWarning, match="3 nodes keep 7-bit inputs, first '0', that qnnpack does not need"):
        moved = convert(before, backend="qnnpack")
    assert torch.equal(RuntimeModel(moved)(X), RuntimeModel(before, "qnnpack")(X))


def test_what_saturates_there_must_be_calibrated_again():
    with pytest.raises(MismatchError, match=r"3 nodes are not right on fbgemm.*'0': input codes 0\.\.255 can saturate"):
        convert(converted_for("qnnpack"), backend="fbgemm")


def test_a_full_range_model_moves_where_the_cpu_has_vnni():
    assert convert(converted_for("qnnpack", isa="vnni"), backend="x86").stamp.backends == ("x86",)


def test_weights_that_are_proved_safe_move_with_all_bits():
    layer = nn.Conv2d(4, 2, 1)
    layer.weight.data = torch.tensor([[127.0, 0.0, -127.0, 0.0], [0.0, -127.0, 1.0, 127.0]]).reshape(2, 4, 1, 1)
    moved = convert(converted_for("qnnpack", nn.Sequential(layer)), backend="fbgemm")
    assert (moved.stamp.nodes[0].inputs[0].qmax, moved.stamp.nodes[0].requires_full_range) == (255, False)


@pytest.mark.parametrize(
    ("source", "model", "backend", "message"),
    [
        ("qnnpack", nn.Sequential(up2d(4, 4)), "x86", "x86 has no int8 conv_transpose2d"),
        ("qnnpack", nn.Sequential(up2d(4, 4)), "fbgemm", "a scale per channel, which fbgemm cannot do"),
        ("fbgemm", None, "xnnpack", "its codes are uint8, and xnnpack takes int8"),
        ("qnnpack", nn.Sequential(nn.Conv2d(4, 20, 1), nn.Conv2d(20, 20, 3, groups=5)), "fbgemm", "'1': .*fbgemm"),
    ],
)
def test_what_cannot_stay_int8_is_refused_by_name(source, model, backend, message):
    with pytest.raises(MismatchError, match=message):
        convert(converted_for(source, model, reduce_range="always"), backend=backend)


def test_a_path_stands_for_its_file(tmp_path):
    path = tmp_path / "int8.pt2"
    save(converted_for("fbgemm"), path)
    assert to_bytes(convert(path, backend="x86")) == to_bytes(convert(converted_for("fbgemm"), backend="x86"))
    with pytest.raises(UsageError, match=r"this is a RuntimeModel\. To move a converted file .* give its path"):
        convert(load(path), backend="x86")


def test_without_a_backend_there_is_nothing_to_do():
    with pytest.raises(UsageError, match="converted already"):
        convert(converted_for("fbgemm"))
