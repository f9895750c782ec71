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
from tests.patterns import Attention, Lambda, PaddedConv, bn1d, bn2d, conv, tied

X = (2, 4, 8, 8)


def plan_of(model, shape=X, backend="fbgemm", isa=Isa.ANY, **quantize):
    x = torch.randn(shape)
    graph = capture(model.eval(), (x,), describe_inputs((x,))).graph_module().graph
    config = config_from_mapping({"target": {"backend": backend}, "quantize": quantize})
    return annotate(graph, config.quantize, backends=(backend,), isa=isa)


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
    plan = plan_of(nn.Sequential(conv(), nn.SiLU(), nn.LogSoftmax(1), nn.Softmax(1)))
    assert plan.float_islands() == {
        "aten.silu.default has no int8 pattern: no engine has an int8 kernel for it": 1,
        "aten.log_softmax.int has no int8 pattern": 1,
        "none of its inputs is int8": 1,
    }


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.PReLU(), "torch's int8 kernel for prelu scales positive values too"),
        (nn.GELU(), "no engine has an int8 kernel for it"),
        (Lambda(lambda m, y: y - m.a(y), a=nn.Identity()), "no engine has an int8 kernel for it"),
        (Lambda(lambda m, y: y / 2.5), "no engine has an int8 kernel for it"),
        (Lambda(lambda m, y: y @ y.transpose(2, 3)), "both factors come from the input"),
        (nn.Upsample(scale_factor=2, mode="bicubic"), "no engine has an int8 kernel for it"),
    ],
)
def test_case_12_ops_that_stay_float_say_why(layer, why):
    plan = plan_of(nn.Sequential(conv(), layer))
    (reason,) = plan.float_islands()
    assert why in reason


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
    with pytest.raises(UsageError, match=r"'1' cannot run in int8 \(aten.silu.default has no int8 pattern: .*\)"):
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
    plan = annotate(program.graph_module().graph, config.quantize, backends=("fbgemm",), isa=Isa.ANY)
    assert {edge.name for edge in plan.edges} == {"x", "linear", "linear#2"}
    assert node(plan, "add").reason == "its values are not float32"


# --- transposed convolutions


def up(i=4, o=6, k=3, **kwargs):
    return nn.Sequential(nn.ConvTranspose2d(i, o, k, **kwargs))


@pytest.mark.parametrize("backend", ["onednn", "x86"])
@pytest.mark.parametrize("channels", [(4, 6), (4, 4)])
def test_case_09_transposed_convolutions_stay_float_on_onednn_and_x86(backend, channels):
    for layer, shape in ((nn.ConvTranspose1d(*channels, 3), (2, 4, 8)), (nn.ConvTranspose2d(*channels, 3), X)):
        (reason,) = plan_of(nn.Sequential(layer), shape, backend=backend).float_islands()
        assert "wrong where input and output channels differ" in reason


def test_case_10_the_usual_upsampling_block_stays_float_on_fbgemm_alone():
    model, shape = up(16, 8, 2, stride=2), (2, 16, 6, 6)
    (reason,) = plan_of(model, shape, backend="fbgemm").float_islands()
    assert "gives other numbers" in reason
    assert not plan_of(model, shape, backend="qnnpack").float_islands()


@pytest.mark.parametrize(
    ("backend", "groups", "axis"), [("qnnpack", 1, 1), ("qnnpack", 2, None), ("fbgemm", 1, None), ("fbgemm", 2, None)]
)
def test_case_11_scales_lie_on_the_axis_of_the_output_channels(backend, groups, axis):
    (only,) = plan_of(up(4, 8, groups=groups), backend=backend).nodes
    assert only.weight.axis == axis
    assert ("lie on no axis" in only.weight.why) == (groups > 1)


@pytest.mark.parametrize(("backend", "groups"), [("qnnpack", 2), ("fbgemm", 1)])
def test_case_11_scales_per_channel_asked_for_in_vain_are_an_error(backend, groups):
    with pytest.raises(UsageError, match="'channel' is not possible for conv_transpose2d"):
        plan_of(up(4, 8, groups=groups), backend=backend, weights={"granularity": "channel"})


def test_depthwise_of_a_transposed_convolution():
    (only,) = plan_of(up(4, 8, groups=4), backend="qnnpack").nodes
    assert (only.depthwise, only.channel_multiplier) == (True, 2)
    (other,) = plan_of(up(4, 2, groups=2), backend="qnnpack").nodes
    assert (other.depthwise, other.channel_multiplier) == (False, None)


# --- ranges that are known before any data


@pytest.mark.parametrize(
    ("layer", "full", "reduced"),
    [
        (nn.Sigmoid(), (1 / 256, 0), (1 / 128, 0)),
        (nn.Hardsigmoid(), (1 / 256, 0), (1 / 128, 0)),
        (nn.Softmax(1), (1 / 256, 0), (1 / 128, 0)),
        (nn.Tanh(), (1 / 128, 128), (1 / 64, 64)),
    ],
)
def test_case_31_known_ranges_have_fixed_parameters(layer, full, reduced):
    model = nn.Sequential(conv(), layer, conv(8, 4))
    for backend, expected in (("qnnpack", full), ("fbgemm", reduced)):
        fixed = plan_of(model, backend=backend).edge("1").spec.fixed
        assert (fixed.scale, fixed.zero_point) == expected


def test_case_31_values_that_are_only_moved_keep_the_parameters():
    plan = plan_of(nn.Sequential(conv(), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten()), backend="qnnpack")
    assert {edge.spec.fixed is not None for edge in plan.edges if edge.group == "1"} == {True}
    both = Lambda(lambda m, x: torch.cat([m.a(x).sigmoid(), m.a(x).softmax(1)], 1), a=conv())
    assert plan_of(both).edge("cat").spec.fixed is not None


@pytest.mark.parametrize(
    "model",
    [
        Lambda(lambda m, x: torch.cat([m.a(x).sigmoid(), m.a(x)], 1), a=conv()),
        Lambda(lambda m, x: torch.cat([m.a(x).sigmoid(), m.a(x).tanh()], 1), a=conv()),
        Lambda(lambda m, x: m.a(x).sigmoid().clamp(2.0, 3.0), a=conv()),
    ],
)
def test_case_31_a_value_that_shares_its_scale_with_another_is_observed_and_says_so(model):
    plan = plan_of(model)
    edge = plan.edge("sigmoid")
    assert edge.spec.fixed is None
    assert "so it is observed" in edge.spec.why


def test_case_30_a_masked_softmax_stays_float():
    plan = plan_of(Attention(), (2, 6, 8))
    assert node(plan, "add").reason == "one operand is a constant of the model"
    assert node(plan, "softmax").reason == "none of its inputs is int8"


# --- shared modules and parameters


def test_case_16_a_cat_can_be_kept_float():
    model = Lambda(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=conv(), b=conv())
    plan = plan_of(model, overrides=[{"match": "cat", "dtype": "float"}])
    assert node(plan, "cat").verdict is Verdict.FLOAT
    assert {edge.group for edge in plan.edges} == {"x", "a", "b"}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.middle, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, i):
        return self.head(self.middle(self.table(i)))


def test_case_55_an_embedding_tied_to_an_int8_layer_says_that_it_is_stored_twice():
    i = torch.randint(0, 10, (2, 5))
    graph = capture(Tied().eval(), (i,), describe_inputs((i,))).graph_module().graph
    config = config_from_mapping({"target": {"backend": "fbgemm"}})
    plan = annotate(graph, config.quantize, backends=("fbgemm",), isa=Isa.ANY)
    assert node(plan, "head").verdict is Verdict.INT8
    assert node(plan, "table").reason.endswith("the weight of 'head' too, stored in float here and in int8 there")


def test_case_55_tied_layers_say_whether_they_are_stored_twice():
    for bias, notes in ((False, 0), (True, 1)):
        model = tied(nn.Sequential(nn.Linear(6, 6, bias=bias), nn.Linear(6, 6, bias=bias)))
        reasons = [n.reason for n in plan_of(model, (4, 6)).nodes]
        assert sum("stored twice: bias or batch norm differ" in reason for reason in reasons) == notes
