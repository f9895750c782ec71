"""Files: what goes in comes out, the same bytes each time, and nothing of the machine inside."""

import io
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from qtool.capture.checkpoint import load_checkpoint
from qtool.errors import FileFormatError, ModelError, UsageError
from qtool.readers.archive import read_archive
from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.load import load
from qtool.workflows.prepare import prepare
from qtool.workflows.save import save
from tests.patterns import Lambda, bn2d, conv

OBSERVERS = ["minmax", "moving_average", "histogram", "percentile", "mse"]


def small_model():
    torch.manual_seed(3)
    return nn.Sequential(
        conv(3, 16), bn2d(16), nn.ReLU6(), conv(16, 16, groups=16), bn2d(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()  # fmt: skip


def prepared_model(observer="minmax", backend="fbgemm"):
    config = {"target": {"backend": backend}, "quantize": {"activations": {"observer": observer}}}
    x = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    prepared = prepare(small_model(), x, config)
    calibrate(prepared, [x[:4], x[4:]])
    return prepared, x


@pytest.mark.parametrize("observer", OBSERVERS)
def test_prepare_save_load_convert_equals_the_same_without_the_round_trip(observer):
    prepared, x = prepared_model(observer)
    again = from_bytes(to_bytes(prepared))
    assert torch.equal(again(x), prepared(x))
    assert to_bytes(again) == to_bytes(prepared)
    assert to_bytes(convert(again)) == to_bytes(convert(prepared))


def test_calibration_can_go_on_after_loading():
    prepared, x = prepared_model("histogram")
    again = from_bytes(to_bytes(prepared))
    for model in (prepared, again):
        calibrate(model, [x * 2])
    assert to_bytes(again) == to_bytes(prepared)


def test_two_runs_give_the_same_bytes():
    assert to_bytes(prepared_model()[0]) == to_bytes(prepared_model()[0])
    assert to_bytes(convert(prepared_model()[0])) == to_bytes(convert(prepared_model()[0]))


@pytest.mark.parametrize("stage", ["prepared", "converted"])
def test_nothing_of_the_machine_is_inside(stage):
    prepared, _ = prepared_model()
    data = to_bytes(prepared if stage == "prepared" else convert(prepared))
    with read_archive(data) as archive:
        content = b"\n".join(archive.read(name, limit=1 << 30) for name in archive.names)
    for text in ("site-packages", "/torch/", ".py", sys.prefix, "File ", "forward(", "self."):
        assert text.encode() not in content, text


def test_a_converted_file_opens_with_torch_alone(tmp_path):
    """With the one import that registers the quantize ops, in a process where qtool cannot be imported."""
    prepared, x = prepared_model()
    converted = convert(prepared)
    save(converted, tmp_path / "int8.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", converted(x).detach().numpy())
    script = """
        import sys
        sys.modules["qtool"] = None
        import numpy as np
        import torch
        import torch.ao.quantization.fx._decomposed
        program = torch.export.load("int8.pt2")
        y = program.module()(torch.from_numpy(np.load("x.npy")))
        assert np.array_equal(y.detach().numpy(), np.load("y.npy"))
        custom = [node.meta["custom"]["qtool"] for node in program.graph.nodes if "custom" in node.meta]
        assert {"node": "0", "backend": "fbgemm", "reduce_range": True} in custom
        print("opened")
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.stdout, run.returncode) == ("opened\n", 0), run.stderr


def test_the_float_weights_are_gone():
    """Case 60 for this format: int8 weights once, float only for biases and what stays float."""
    prepared, _ = prepared_model()
    state = convert(prepared).exported.state_dict
    assert {name.rpartition(".")[2] for name in state} == {"weight", "scale", "zero_point", "bias"}
    assert all(tensor.dtype is torch.int8 for name, tensor in state.items() if name.endswith("weight"))


def test_a_weight_that_two_calls_share_is_stored_once():
    torch.manual_seed(0)
    model = Lambda(lambda m, x: m.a(m.a(x) * 50), a=conv(4, 4, padding=1)).eval()
    x = torch.randn(2, 4, 8, 8)
    prepared = prepare(model, x, {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [x])
    state = convert(prepared).exported.state_dict
    assert [name for name in state if name.endswith("weight")] == ["a.int8.weight"]


def test_case_57_a_changed_weight_is_found_on_loading():
    """In a zip that is whole: its own checksums fit the changed weight, the stamp does not."""
    changed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(to_bytes(convert(prepared_model()[0])))) as source,
        zipfile.ZipFile(changed, "w") as target,
    ):
        for entry in source.infolist():
            content = bytearray(source.read(entry))
            if entry.filename.endswith("data/weights/weight_0"):
                content[0] ^= 1
            target.writestr(entry, bytes(content))
    with pytest.raises(FileFormatError, match="the content is not what the stamp was written for"):
        from_bytes(changed.getvalue())


class SqueezeExcite(nn.Module):
    """A MobileNetV3 block: batch norms of momentum 0.01, hardswish, squeeze and excite."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = conv(3, 8, padding=1), nn.BatchNorm2d(8, momentum=0.01)
        self.squeeze, self.excite = conv(8, 4, 1), conv(4, 8, 1)

    def forward(self, x):
        y = nn.functional.hardswish(self.bn(self.conv(x)))
        s = nn.functional.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))
        return y * nn.functional.hardsigmoid(self.excite(s))


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack", "x86"])
def test_case_57_every_way_to_load_gives_the_same_numbers(tmp_path, backend):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    prepared = prepare(SqueezeExcite().eval(), x, {"target": {"backend": backend}})
    calibrate(prepared, [x])
    converted = convert(prepared)
    path = tmp_path / "int8.pt2"
    save(converted, path)
    with path.open("rb") as file:
        ways = [load(path), load(str(path)), load(path.read_bytes()), load(file)]
    outputs = [model(x) for model in ways]
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert torch.equal(from_bytes(path.read_bytes())(x), converted(x))


def test_case_56_a_file_describes_itself(tmp_path):
    """Loading needs no model code: the file rebuilds the model, in a process that never saw its class."""
    prepared, x = prepared_model("mse")
    save(prepared, tmp_path / "prepared.pt2")
    assert torch.equal(load(tmp_path / "prepared.pt2")(x), prepared(x))


def test_case_56_quantized_weights_do_not_load_into_a_float_model(tmp_path):
    state = {"0.weight": torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)}
    torch.save(state, tmp_path / "int8.pth")
    with pytest.raises(ModelError, match=r"is quantized \(1 quantized tensors\), the model is float"):
        load_checkpoint(nn.Sequential(nn.Linear(2, 2)), tmp_path / "int8.pth")


def test_save_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(UsageError, match="cannot save a Linear"):
        save(nn.Linear(2, 2), tmp_path / "x.pt2")
    runtime = load(to_bytes(convert(prepared_model()[0])))
    with pytest.raises(UsageError, match="packed for an engine"):
        save(runtime, tmp_path / "x.pt2")


def test_case_14_the_scale_is_one_and_the_same_from_calibration_to_file():
    torch.manual_seed(0)
    prepared, x = prepared_model()
    seen = {}
    for name, point in prepared.activations.items():
        point.register_forward_hook(
            lambda module, *_, name=name: seen.update({name: module.fake_quantize.scale.clone()})
        )
    prepared(x)
    loaded = from_bytes(to_bytes(convert(prepared)))
    in_file = {
        node.meta["custom"]["qtool"]["edge"]: node.args[1]
        for node in loaded.exported.graph.nodes
        if str(node.target) == "quantized_decomposed.quantize_per_tensor.default"
    }
    assert in_file == {name: float(scale) for name, scale in seen.items()}
