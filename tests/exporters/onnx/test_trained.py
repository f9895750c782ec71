"""A model that was trained for int8, as ONNX: the trained ranges hold, also beyond what was observed."""

import functools

import pytest
import torch
from torch import nn

import qtool
from qtool.exporters.onnx.verify import OPTIMIZATIONS, edge_codes, onnx_differences
from tests.exporters.onnx.exported import to_onnx

CONFIG = {"target": {"backend": "onnxruntime", "isa": "no-vnni"}, "quantize": {"mode": "qat"}}


@functools.cache
def trained():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))
    x = torch.randn(16, 3, 8, 8)
    prepared = qtool.prepare(nn.Sequential(*layers), x, CONFIG)
    qtool.calibrate(prepared, [x])
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05)
    prepared.train()
    for _ in range(2):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    converted = qtool.convert(prepared.eval())
    return converted, to_onnx(converted), x


@pytest.mark.parametrize("factor", [1, 2], ids=["observed", "beyond"])
def test_at_most_one_step_per_node(factor):
    converted, files, x = trained()
    for differences in onnx_differences(converted, files, None, (factor * x,)).values():
        assert differences.keys() == {edge.name for edge in converted.plan.edges}
        assert max(differences.values()) <= 1


@pytest.mark.parametrize("optimization", list(OPTIMIZATIONS))
def test_case_65_codes_end_at_127_at_twice_what_was_observed(optimization):
    converted, files, x = trained()
    assert converted.stamp.nodes[0].reduce_range
    codes = edge_codes(files, None, (2 * x,), optimization)
    reduced = [edge.name for edge in converted.plan.edges if edge.spec.qmax == 127]
    assert len(reduced) >= 2  # what the convolution reads, and what the linear reads
    assert (int(codes["input"].min()), int(codes["input"].max())) == (0, 127)
    for name in reduced:
        assert codes[name].dtype == torch.uint8
        assert int(codes[name].max()) == 127
