"""The whole way to an ONNX model: the same bytes, nothing of this machine, a free batch, a fourth of the size."""

import sys
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import qtool
from qtool.errors import ModelError, QtoolWarning
from qtool.exporters.onnx.model import onnx_model
from qtool.runtime.store import to_bytes
from tests.exporters.onnx.exported import exported_pattern, exported_together, proto_of, run, to_onnx
from tests.exporters.together import QUICK, converted_pattern, converted_together


def converted_model(model, x, backend="onnxruntime"):
    prepared = qtool.prepare(model.eval(), x, {"target": {"backend": backend}})
    qtool.calibrate(prepared, [x])
    return qtool.convert(prepared)


def test_the_same_model_gives_the_same_bytes_and_stays_as_it_is():
    converted, _ = converted_pattern("conv2d_bn_relu6")
    before = to_bytes(converted)
    assert to_onnx(converted) == exported_pattern("conv2d_bn_relu6")
    assert to_bytes(converted) == before


def test_the_file_tells_nothing_of_this_machine():
    data = exported_pattern("conv2d_bn_relu6").data
    traces = [str(Path.cwd()), str(Path(torch.__file__).parent.parent), sys.prefix, "site-packages", ".py", "pkg.torch"]
    assert not [trace for trace in traces if trace.encode() in data]
    proto = proto_of(exported_pattern("conv2d_bn_relu6"))
    assert not any(node.doc_string for node in proto.graph.node)
    assert (proto.producer_name, proto.doc_string) == ("qtool", "")


@pytest.mark.parametrize("batch", [1, 7])
def test_any_batch_runs(batch):
    files, (converted, (inputs, _)) = exported_together(QUICK, "onnxruntime"), converted_together(QUICK, "onnxruntime")
    given = {name: torch.randn(batch, *x.shape[1:]) for name, x in inputs.items()}
    found = run(files.data, *(x.numpy() for x in given.values()))
    expected = torch.utils._pytree.tree_leaves(converted(given))
    assert [array.shape for array in found] == [tuple(tensor.shape) for tensor in expected]
    declared = [value.type.tensor_type.shape.dim[0].dim_param for value in proto_of(files).graph.input]
    assert declared == ["batch"] * len(QUICK)


def test_weights_are_stored_as_int8_alone():
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256))
    files = to_onnx(converted_model(model, torch.randn(8, 512)))
    float_bytes = sum(p.numel() * 4 for p in model.parameters())
    assert len(files.data) <= 0.30 * float_bytes


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) + self.calls


def test_a_model_that_keeps_state_is_refused():
    with pytest.warns(QtoolWarning, match="'add_' saw values from 1 to 1 alone"):
        converted = converted_model(Counter(), torch.randn(8, 4))
    with pytest.raises(ModelError, match="keeps 'calls' from call to call"):
        onnx_model(converted)


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


def test_an_op_without_translation_is_named():
    converted = converted_model(nn.Sequential(nn.Linear(4, 4), Bessel()), torch.randn(8, 4))
    with pytest.raises(ModelError, match=r"cannot be written as ONNX: .*bessel_j0"):
        onnx_model(converted)


def test_the_checker_accepts_what_comes_out():
    onnx.checker.check_model(proto_of(exported_pattern("conv2d_bn_relu6")), full_check=True)
