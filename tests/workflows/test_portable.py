"""Several backends: the plan's losses and who asks for them, and one program that is right on every engine."""

import pytest
import torch
from torch import nn

from qtool.backends.target import PORTABLE_BACKENDS
from qtool.passes.target_costs import FLOAT, ONE_SCALE, REDUCED
from qtool.plan import TargetCost
from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import codes_found, edge_codes
from qtool.types import Granularity
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.lowering.engine_template import both_inputs
from tests.patterns import PATTERNS, conv, make_pattern, up2d

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
SAMPLE = ("conv2d_chain", "conv2d_depthwise", "conv_transpose2d")


def plan_for(model, x, backend, isa="any"):
    return prepare(model.eval(), x, {"target": {"backend": backend, "isa": isa}}).plan


def test_each_loss_names_its_nodes_and_who_asks_for_it():
    model = nn.Sequential(conv(4, 8), nn.ReLU(), up2d(8, 4), nn.Flatten(), nn.Linear(256, 3))
    plan = plan_for(model, torch.rand(2, 4, 8, 8), "portable")
    assert plan.backends == PORTABLE_BACKENDS
    assert plan.costs == (
        TargetCost(what=REDUCED, nodes=("0", "4"), backends=("fbgemm", "x86", "onednn", "onnxruntime")),
        TargetCost(what=FLOAT, nodes=("2",), backends=("x86", "onednn", "onnxruntime")),
    )


def test_a_weight_gets_the_scales_that_all_can_do():
    plan = plan_for(nn.Sequential(up2d(8, 4)), torch.rand(2, 8, 4, 4), ["qnnpack", "fbgemm"])
    assert plan.nodes[0].weight.granularity is Granularity.TENSOR
    assert TargetCost(what=ONE_SCALE, nodes=("0",), backends=("fbgemm",)) in plan.costs


def test_one_backend_costs_nothing():
    assert plan_for(nn.Sequential(conv()), torch.rand(2, 4, 8, 8), "fbgemm").costs == ()


def test_the_stamp_lists_all_backends_for_the_file_and_each_node():
    x = torch.rand(2, 4, 8, 8)
    prepared = prepare(nn.Sequential(conv(), nn.ReLU()).eval(), x, {"target": {"backend": ["onednn", "qnnpack"]}})
    calibrate(prepared, [x])
    stamp = convert(prepared).stamp
    assert stamp.backends == ("onednn", "qnnpack")
    assert {node.backends for node in stamp.nodes} == {("onednn", "qnnpack")}


def codes_on_each_engine(name):
    model, x = make_pattern(name)
    prepared = prepare(model, x, {"target": {"backend": "portable"}}, dynamic_batch=PATTERNS[name].has_batch)
    calibrate(prepared, [x])
    converted = convert(prepared)
    bodies = {engine: RuntimeModel(converted, engine).body for engine in ENGINES}
    for inputs in both_inputs(x):
        expected = edge_codes(prepared, (inputs,))
        yield expected, {engine: codes_found(body, expected, (inputs,)) for engine, body in bodies.items()}


def assert_within_one_step(name):
    for expected, found in codes_on_each_engine(name):
        for edge in expected:
            codes = torch.stack([found[engine][edge].int() for engine in ENGINES])
            assert int((codes.amax(0) - codes.amin(0)).max()) <= 1, edge
            assert int((codes - expected[edge].int()).abs().max()) <= 1, edge


@pytest.mark.parametrize("name", SAMPLE)
def test_one_file_gives_the_same_on_four_engines(name):
    assert_within_one_step(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - set(SAMPLE)))
def test_every_pattern_gives_the_same_on_four_engines(name):
    assert_within_one_step(name)
