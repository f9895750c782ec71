"""Inspecting converted files of real models: ops by name, and what another backend cannot do with them."""

import pytest
import torch
from torch import nn

from qtool.runtime.store import to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.inspect import inspect
from qtool.workflows.prepare import prepare


@pytest.fixture(scope="module")
def file():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 6, 3), nn.ConvTranspose2d(6, 4, 3, stride=2), nn.Hardswish(), nn.Softmax(1)
    ).eval()
    x = torch.randn(4, 4, 8, 8)
    prepared = prepare(model, x, {"target": {"backend": "qnnpack"}})
    calibrate(prepared, [x])
    return to_bytes(convert(prepared))


def test_new_ops_are_named_and_fit_their_own_backend(file):
    report = inspect(file)
    assert [node.op for node in report.int8_nodes()] == ["conv2d", "conv_transpose2d", "hardswish", "softmax"]
    assert report.outcome.value == "ok"


@pytest.mark.parametrize(
    ("backend", "finding"),
    [
        ("onednn", "onednn has no int8 conv_transpose2d"),
        ("x86", "x86 has no int8 conv_transpose2d"),
        ("fbgemm", "its weight is per channel, fbgemm can do per tensor"),
    ],
)
def test_case_09_11_what_another_backend_cannot_do_is_found(file, backend, finding):
    found = [each.message for each in inspect(file, backend=backend).findings if each.node == "1"]
    assert finding in found


def test_the_proof_is_of_the_output_channels_of_a_transposed_weight():
    """Two large weights of one output channel, on one column of the second group; no row of the weight has two."""
    layer = nn.ConvTranspose1d(4, 4, 1, groups=2, bias=False)
    layer.weight.data = torch.tensor([[0.1, 0.0], [0.0, 0.1], [0.0, 1.0], [0.0, 1.0]]).unsqueeze(2)
    x = torch.rand(4, 4, 8)
    prepared = prepare(layer.eval(), x, {"target": {"backend": "qnnpack"}})
    calibrate(prepared, [x])
    (node,) = convert(prepared).stamp.nodes
    assert (node.saturation.num_channels, node.saturation.worst_pair_sum) == (1, 2 * 127 * 255)
