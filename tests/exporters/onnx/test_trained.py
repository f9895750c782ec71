"""A model that was trained for int8, as ONNX: the trained ranges hold, also beyond what was observed."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import qtool
from qtool.exporters.onnx.verify import OPTIMIZATIONS, edge_codes, onnx_differences
from tests.exporters.onnx.exported import initializers_of, ops_of, proto_of, to_onnx

CONFIG = {"target": {"backend": "onnxruntime", "isa": "no-vnni"}, "quantize": {"mode": "qat"}}


@functools.cache
def trained(bias=True):
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8), nn.ReLU6(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))
    x = torch.randn(16, 3, 8, 8)
    layers[1].bias.data.uniform_(0.5, 1.0)
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


def test_case_45_a_bias_that_folding_made_in_training_is_int32_like_any_other():
    """The same graph with and without a bias of the convolution's own; its codes are those of the folded bias."""
    graphs = []
    for bias in (True, False):
        converted, files, _ = trained(bias)
        proto = proto_of(files)
        (conv,) = ops_of(proto, "Conv")
        producers = {node.output[0]: node for node in proto.graph.node}
        arrays = initializers_of(proto)
        x, weight, made = (producers[value] for value in conv.input)
        scale = arrays[x.input[1]] * arrays[weight.input[1]]
        codes = arrays[made.input[0]]
        assert codes.dtype == np.int32
        folded = converted.exported.state_dict["0.int8.bias"].double().numpy()
        np.testing.assert_array_equal(codes, np.rint(folded / scale.astype(np.float64)))
        assert np.any(codes != 0)
        graphs.append([node.op_type for node in proto.graph.node])
    assert graphs[0] == graphs[1]
