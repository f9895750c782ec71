"""Older and newer opsets: the same results, or an error that names the opset to use."""

import functools

import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qtool.cli.main import run
from qtool.errors import ModelError
from qtool.exporters.onnx.model import onnx_model
from qtool.exporters.onnx.opsets import in_opset
from qtool.exporters.onnx.verify import onnx_differences
from qtool.workflows.save import save
from tests.exporters.onnx.exported import attributes_of, ops_of, proto_of, to_onnx
from tests.exporters.onnx.test_model import converted_model

OPSETS = [13, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (14, 15, 16, 18, 19, 20, 21, 22, 23))]


class Changed(nn.Module):
    """All ops whose form changed between opset 13 and 18, and some that did not."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(8, 8)

    def forward(self, image):
        x = self.conv(image)
        return {
            "mean": self.fc(x.mean((2, 3))),
            "pool": F.adaptive_avg_pool2d(x, 1).flatten(1),
            "view": x.view(x.shape[0], 8, -1),
            "rows": self.fc(x.permute(0, 2, 3, 1)),
            "softmax": F.softmax(x.mean((2, 3), keepdim=True), 1),
            "nearest": F.interpolate(x, scale_factor=2.0),
            "bilinear": F.interpolate(x, scale_factor=2.0, mode="bilinear"),
            "pad": F.pad(x, (1, 2, 0, 1)),
            "reflect": F.pad(x, (1, 1, 1, 1), mode="reflect"),
            "chunk": torch.cat(x.chunk(2, 1)[::-1], 1),
            "split": x.split([3, 5], 1)[1],
            "amax": x.amax((2, 3)),
            "max_pool": F.max_pool2d(x, 3, 2, ceil_mode=True),
            "avg_pool": F.avg_pool2d(x, 2),
            "shuffle": F.pixel_shuffle(x, 2),
        }


@functools.cache
def changed():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    return converted_model(Changed(), x), x


@functools.cache
def with_layer_norm():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Hardswish())
    return converted_model(model, torch.randn(4, 8))


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_computes_the_same(opset):
    converted, x = changed()
    proto = proto_of(files := to_onnx(converted, opset=opset))
    assert [entry.version for entry in proto.opset_import] == [opset]
    found = onnx_differences(converted, files, None, (x,))
    for differences in found.values():
        assert differences.keys() == {edge.name for edge in converted.plan.edges}
        assert max(differences.values()) <= 1
    for mean in ops_of(proto, "ReduceMean"):
        assert (len(mean.input), "axes" in attributes_of(mean)) == ((1, True) if opset < 18 else (2, False))


def test_an_opset_that_lacks_an_op_is_an_error_that_names_one_that_has_all():
    with pytest.raises(ModelError, match=r"in opset 13: LayerNormalization .* needs opset 17; use --opset 17"):
        onnx_model(with_layer_norm(), 13)
    assert proto_of(to_onnx(with_layer_norm(), opset=17)).opset_import[0].version == 17


@pytest.mark.parametrize(
    ("result", "op", "oldest"),
    [
        ("int64[1] y", "y = Shape <start = 1, end = 2> (x)", 13),
        ("float[A,B] y", "y = Reshape <allowzero = 1> (x, numbers)", 13),
        ("float[A,8] y", "y = Resize <antialias = 0> (x, , scales)", 13),
        ("float[A,8] y", "y = Resize <antialias = 1, mode = 'linear'> (x, , scales)".replace("'", '"'), 18),
        ("float[A] y", "y = ReduceMean <keepdims = 0> (x, computed)", 18),
        ("float[N,4] y", "y = HardSwish (x)", 14),
        ("float[N,4] y", "y = LeakyRelu (x)", 13),
        ("int64[2] y", "y = Mul (numbers, numbers)", 13),
    ],
)
def test_the_oldest_opset_of_an_op(result, op, oldest):
    text = f"""<ir_version: 10, opset_import: ["" : 18]> agraph (float[N, 4] x, int64[1] computed) => ({result})
        <int64[2] numbers = {{-1, 2}}, float[2] scales = {{2.0, 2.0}}> {{ {op} }}"""
    for opset in range(13, 18):
        model = ir.from_onnx_text(text)
        if opset < oldest:
            with pytest.raises(ModelError, match=f"needs opset {oldest}; use --opset {oldest}"):
                in_opset(model, opset)
        else:
            in_opset(model, opset)
            onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_what_the_checker_refuses_is_a_fault_of_qtool(tmp_path, monkeypatch, capfd):
    def refuse(*_, **__):
        msg = "Unrecognized attribute"
        raise onnx.checker.ValidationError(msg)

    save(with_layer_norm(), tmp_path / "int8.pt2")
    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    assert run(["export", str(tmp_path / "int8.pt2"), "-o", str(tmp_path / "a.onnx")]) == 70
    assert "internal error: ValidationError: Unrecognized attribute" in capfd.readouterr().err
    assert not (tmp_path / "a.onnx").exists()
