"""Which nodes an engine is chosen for, and that each one may have its own."""

import pytest
import torch
from torch import nn

from qtool.capture.program import plain_module
from qtool.lowering.lower import lower
from qtool.lowering.mac_nodes import mac_nodes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import bn2d, conv

ENGINES = ("fbgemm", "qnnpack", "onednn")


@pytest.fixture(scope="module")
def converted():
    torch.manual_seed(0)
    model = nn.Sequential(
        conv(3, 8), bn2d(8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 8, groups=8), nn.Flatten(), nn.Linear(8 * 3 * 3, 5)
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 12, 12)
    prepared = prepare(model, x, {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [x])
    return convert(prepared), x


def test_they_are_the_convolutions_and_linear_layers_in_order(converted):
    assert [node.label for node in mac_nodes(plain_module(converted[0].exported))] == ["0", "4", "6"]


def test_without_stamps_they_bear_the_graphs_names(converted):
    module = plain_module(converted[0].exported)
    for node in module.graph.nodes:
        node.meta.pop("custom", None)
    nodes = mac_nodes(module)
    assert [node.label for node in nodes] == [node.name for node in nodes]


def test_engines_mix_in_one_program(converted):
    model, x = converted
    module = plain_module(model.exported)
    nodes = mac_nodes(module)
    lowered = lower(module, {node.name: engine for node, engine in zip(nodes, ENGINES, strict=True)})
    assert [kernel.engine for kernel in lowered.modules() if hasattr(kernel, "engine")] == list(ENGINES)
    assert torch.equal(lowered(x), model(x))
