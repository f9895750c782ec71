"""Verdicts, reasons, sharing and ranges of the plan."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.errors import ConfigError, UsageError
from qtool.passes.annotate import annotate
from qtool.types import Isa, Op, Verdict
from tests.patterns import Lambda, PaddedConv, bn1d, bn2d, conv

X = (2, 4, 8, 8)


def plan_of(model, shape=X, backend="fbgemm", isa=Isa.ANY, **quantize):
    x = torch.randn(shape)
    graph = capture(model.eval(), (x,), describe_inputs((x,))).graph_module().graph
    config = config_from_mapping({"target": {"backend": backend}, "quantize": quantize})
    return annotate(graph, config.quantize, backend=backend, isa=isa)


def node(plan, name):
    return next(n for n in plan.nodes if n.name == name)


def test_convolution_batch_norm_and_activation_are_one_node():
    plan = plan_of(nn.Sequential(conv(), bn2d(8), nn.ReLU6()))
    (only,) = plan.nodes
    assert (only.name, only.op, only.batch_norm, only.activation) == ("0", Op.CONV2D, True, "relu6")
    assert len(only.members) == 3


def test_a_result_that_is_read_twice_is_not_fused():
    plan = plan_of(Lambda(lambda m, x: F.relu(y := m.a(x)) + y, a=conv()))
    assert [n.op for n in plan.nodes] == [Op.CONV2D, Op.ACTIVATION, Op.ADD]


def test_a_batch_norm_after_a_linear_of_three_dimensions_is_not_folded():
    """Its channels are dimension 1, the linear layer's are the last."""
    plan = plan_of(nn.Sequential(nn.Linear(4, 6), bn1d(8)), (2, 8, 4))
    assert [n.batch_norm for n in plan.nodes] == [False, False]
    assert node(plan, "1").verdict is Verdict.FLOAT


def test_float_islands_say_why():
    plan = plan_of(nn.Sequential(conv(), nn.SiLU(), nn.Softmax(1)))
    assert plan.float_islands() == {
        "aten.silu.default has no int8 pattern": 1,
        "aten.softmax.int has no int8 pattern": 1,
    }


def test_an_add_of_float_values_is_not_quantized_for_its_own_sake():
    plan = plan_of(Lambda(lambda m, x: torch.sin(x) + torch.cos(x)))
    assert node(plan, "add").reason == "none of its inputs is int8"


def test_names_follow_modules_and_calls():
    plan = plan_of(Lambda(lambda m, x: m.a(m.a(x)) + x, a=conv(4, 4, padding=1)))
    assert [n.name for n in plan.nodes] == ["a", "a#2", "add"]


def test_a_padding_convolution_gives_its_name_to_the_convolution():
    plan = plan_of(nn.Sequential(PaddedConv(4, 8, 3)))
    assert [(n.name, n.op) for n in plan.nodes] == [("0.pad", Op.LAYOUT), ("0", Op.CONV2D)]


def test_case_18_ops_that_move_values_share_their_inputs_scale():
    plan = plan_of(Lambda(lambda m, x: m.a(x)[:, :4] + m.a(x)[:, 4:], a=conv(3, 8, padding=1)), (1, 3, 32, 32))
    groups = {edge.name: edge.group for edge in plan.edges}
    for slices in (n for n in plan.nodes if n.op is Op.LAYOUT):
        assert groups[slices.output] == groups[slices.inputs[0]]
    assert groups["add"] == "add"


@pytest.mark.parametrize(
    "move",
    [
        lambda y: y.view(y.size(0), -1),
        lambda y: y.flatten(1),
        lambda y: y.permute(0, 2, 3, 1),
        lambda y: y.chunk(2, 1)[1],
        lambda y: y.split([3, 5], 1)[0],
        lambda y: F.max_pool2d(y, 2),
        lambda y: F.pad(y, (1, 1)),
        lambda y: y.unsqueeze(1).squeeze(1),
    ],
)
def test_case_18_every_such_op_is_in_its_inputs_group(move):
    plan = plan_of(Lambda(lambda m, x: move(m.a(x)), a=conv()))
    assert {edge.group for edge in plan.edges if edge.name != "x"} == {"a"}


def test_cat_and_its_inputs_share_one_scale():
    plan = plan_of(Lambda(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=conv(), b=conv()))
    assert {edge.name: edge.group for edge in plan.edges} == {"x": "x", "a": "a", "b": "a", "cat": "a"}


def test_only_what_a_saturating_kernel_reads_is_reduced():
    plan = plan_of(nn.Sequential(conv(), nn.ReLU(), conv(8, 4)))
    ranges = {edge.name: (edge.spec.qmin, edge.spec.qmax) for edge in plan.edges}
    assert ranges == {"input": (0, 127), "0": (0, 127), "2": (0, 255)}
    assert [n.reduce_range for n in plan.nodes] == [True, True]


@pytest.mark.parametrize(("backend", "isa"), [("qnnpack", Isa.ANY), ("onednn", Isa.VNNI)])
def test_the_full_range_is_kept_where_it_is_exact(backend, isa):
    plan = plan_of(nn.Sequential(conv(), nn.ReLU(), conv(8, 4)), backend=backend, isa=isa)
    assert {(edge.spec.qmin, edge.spec.qmax) for edge in plan.edges} == {(0, 255)}


def test_reduce_range_of_one_node_reduces_its_input_alone():
    model = nn.Sequential(conv(), conv(8, 4), conv(4, 4))
    plan = plan_of(model, backend="qnnpack", overrides=[{"match": "1", "reduce_range": "always"}])
    assert [n.reduce_range for n in plan.nodes] == [False, True, False]
    assert plan.edge("0").spec.qmax == 127


def test_case_52_skip_keeps_a_node_float_and_explicit_beats_default():
    model = nn.Sequential(conv(), nn.ReLU(), conv(8, 4))
    plan = plan_of(model, skip=["2"])
    assert node(plan, "2").verdict is Verdict.FLOAT
    assert node(plan, "2").reason == "asked for: quantize.skip.0"
    assert node(plan, "0").verdict is Verdict.INT8


def test_case_52_an_unknown_name_is_an_error_with_near_names():
    with pytest.raises(ConfigError, match=r"quantize\.skip\.0.*'clasifier'.*classifier"):
        plan_of(Lambda(lambda m, x: m.classifier(x), classifier=conv()), skip=["clasifier"])


def test_int8_where_it_is_impossible_is_an_error():
    with pytest.raises(UsageError, match=r"'1' cannot run in int8 \(aten.silu.default has no int8 pattern\)"):
        plan_of(nn.Sequential(conv(), nn.SiLU()), overrides=[{"match": "1", "dtype": "int8"}])


def test_two_observers_in_one_group_are_an_error():
    model = Lambda(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=conv(), b=conv())
    overrides = [{"match": "a", "observer": "mse"}, {"match": "b", "observer": "percentile"}]
    with pytest.raises(UsageError, match="share one scale"):
        plan_of(model, overrides=overrides)


def test_one_observer_asked_for_serves_its_group():
    model = Lambda(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=conv(), b=conv())
    plan = plan_of(model, overrides=[{"match": "a", "observer": "mse"}])
    assert {edge.name: edge.spec.observer for edge in plan.edges if edge.name != "x"} == {
        "a": "mse",
        "b": "mse",
        "cat": "mse",
    }


class Indexed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, i):
        return self.linear(x)[:, i + 1], self.linear(x)[:, torch.arange(4) + 0]


def test_case_29_integers_are_neither_observed_nor_changed():
    x, i = torch.randn(2, 4), torch.tensor([0, 2])
    inputs = describe_inputs((x, i), dynamic_batch=False)
    program = capture(Indexed().eval(), (x, i), inputs)
    config = config_from_mapping({"target": {"backend": "fbgemm"}})
    plan = annotate(program.graph_module().graph, config.quantize, backend="fbgemm", isa=Isa.ANY)
    assert {edge.name for edge in plan.edges} == {"x", "linear", "linear#2"}
    assert node(plan, "add").reason == "its values are not float32"
