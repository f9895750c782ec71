"""The comparison of an ONNX file with the reference program."""

import torch
from torch import nn

import qtool
from qtool.exporters.onnx.verify import onnx_differences
from tests.exporters.onnx.exported import to_onnx


def test_a_model_without_int8_has_nothing_to_compare():
    model, x = nn.Sequential(nn.SiLU(), nn.Softplus()).eval(), torch.randn(4, 5)
    prepared = qtool.prepare(model, x, {"target": {"backend": "onnxruntime"}})
    converted = qtool.convert(prepared)
    assert onnx_differences(converted, to_onnx(converted), None, (x,)) == {"off": {}, "on": {}}


def test_a_trained_model_is_at_most_a_step_off():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    x = torch.randn(8, 3, 8, 8)
    prepared = qtool.prepare(model, x, {"target": {"backend": "onnxruntime"}, "quantize": {"mode": "qat"}}).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    converted = qtool.convert(prepared.eval())
    files = to_onnx(converted)
    for inputs in (x, x * 2, -x * 10):
        for differences in onnx_differences(converted, files, None, (inputs,)).values():
            assert differences.keys() == {edge.name for edge in converted.plan.edges}
            assert max(differences.values()) <= 1
