"""`reduce_range: per_node`: the eighth bit is given up only where the weights can saturate with it."""

import pytest
import torch
from torch import nn

from qtool.errors import ConfigError
from qtool.saturation.pairs import SaturationVerdict, prove
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.per_node_range import reduced_per_node
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify


def layer(*weights):
    """A linear layer whose int8 codes are known: the largest weight of a row is 127."""
    made = nn.Linear(len(weights[0]), len(weights))
    made.weight.data = torch.tensor(weights, dtype=torch.float32)
    return made


SAFE = layer([127.0, 1.0, -100.0, 0.0], [-127.0, 0.0, 1.0, 100.0])
UNSAFE = layer([127.0, 100.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0])


def converted_with(reduce, *layers, **quantize):
    torch.manual_seed(0)
    x = torch.rand(16, 4)
    config = {"target": {"backend": "fbgemm"}, "quantize": {"reduce_range": reduce, **quantize}}
    prepared = prepare(nn.Sequential(*layers).eval(), x, config)
    calibrate(prepared, [x])
    return prepared, convert(prepared)


def test_only_nodes_that_can_saturate_are_reduced():
    _, converted = converted_with("per_node", SAFE, nn.Linear(2, 4), UNSAFE)
    nodes = {node.name: node for node in converted.stamp.nodes}
    assert not nodes["0"].reduce_range
    assert (nodes["0"].inputs[0].qmax, nodes["0"].requires_full_range) == (255, False)
    assert nodes["2"].reduce_range
    assert nodes["2"].inputs[0].qmax == 127
    assert "leaves int16" in converted.plan.edge("input").spec.why


def test_auto_reduces_both():
    _, converted = converted_with("auto", SAFE, nn.Linear(2, 4), UNSAFE)
    assert [node.reduce_range for node in converted.stamp.nodes] == [True, True, True]


def test_a_node_that_shares_its_input_with_one_that_saturates_is_reduced():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.safe, self.unsafe = SAFE, UNSAFE

        def forward(self, x):
            return self.safe(x), self.unsafe(x)

    _, converted = converted_with("per_node", Both())
    assert [node.reduce_range for node in converted.stamp.nodes] == [True, True]


def test_an_override_asks_for_one_node():
    override = {"match": "0", "reduce_range": "per_node"}
    _, converted = converted_with("auto", SAFE, layer([127.0, 0.0]), overrides=[override])
    assert [node.reduce_range for node in converted.stamp.nodes] == [False, True]


def test_what_keeps_the_full_range_is_proved_with_its_final_codes():
    generator = torch.Generator().manual_seed(3)
    layers = [nn.Linear(6, 6) for _ in range(12)]
    for each in layers:
        each.weight.data = torch.randn(6, 6, generator=generator)
    for each in layers[::2]:
        each.weight.data.mul_(torch.eye(6))  # one weight a row
    prepared, converted = converted_with("per_node", layer(*[[1.0] * 4] * 6), *layers)
    codes = {name: weight.codes.numpy() for name, weight in prepared.parameters_found().weights.items()}
    full = [node.name for node in converted.stamp.nodes if not node.reduce_range]
    reduced = [node.name for node in converted.stamp.nodes if node.reduce_range]
    assert full
    assert reduced
    assert {prove(codes[name], 0, 255).verdict for name in full} == {SaturationVerdict.SAFE}
    assert {prove(codes[name], 0, 255).verdict for name in reduced} == {SaturationVerdict.CAN_SATURATE}


def test_the_engine_is_right_where_a_node_was_let_off():
    prepared, converted = converted_with("per_node", SAFE)
    assert max(verify(reduced_per_node(prepared), converted).values()) <= 1


def test_training_refuses_it():
    with pytest.raises(ConfigError, match="per_node with mode: qat, whose weights change"):
        converted_with("per_node", SAFE, mode="qat")
