import warnings

import pytest
import torch
from torch import nn
from torch.ao import quantization as ao

from qtool.readers.facts import Compute, FileKind, Role
from qtool.types import Op
from tests.readers.pickles.samples import dynamic, eager, facts_of, graph, nodes_of, saved


@pytest.fixture(scope="module")
def static():
    return eager()


def numbers(quantization):
    return quantization.scale, quantization.zero_point


def check_static(nodes, model):
    """Compare scales, zero points and shapes with the model's own."""
    for name in ("features.0", "features.3", "up", "fc"):
        layer, node = model.get_submodule(name), nodes[name]
        weight = node.operand(Role.WEIGHT)
        assert node.compute is Compute.STATIC
        assert weight.tensor.shape == tuple(layer.weight().shape)
        assert (weight.quantization.dtype, weight.quantization.qmin, weight.quantization.qmax) == ("int8", -128, 127)
        output = node.operand(Role.OUTPUT).quantization
        assert (output.dtype, output.qmin, output.qmax) == ("uint8", 0, 255)
        assert numbers(output) == (pytest.approx((layer.scale,), rel=1e-7), (layer.zero_point,))
        assert node.operand(Role.BIAS).tensor.dtype == "float32"
    assert nodes["features.0"].operand(Role.WEIGHT).quantization.axis == 0
    assert nodes["up"].operand(Role.WEIGHT).quantization.scale == (model.up.weight().q_scale(),)
    assert [nodes[name].op for name in ("features.0", "up", "fc")] == [Op.CONV2D, Op.CONV_TRANSPOSE2D, Op.LINEAR]
    assert [nodes[name].packed_class for name in ("up", "fc")] == ["Conv2dPackedParamsBase", "LinearPackedParamsBase"]
    assert numbers(nodes["add"].operand(Role.OUTPUT).quantization)[1] == (model.add.zero_point,)


def test_an_eager_state_dict(static):
    data = saved(static.state_dict())
    nodes = nodes_of(data)
    check_static(nodes, static)
    assert nodes["quant"].target == "quantize"
    assert nodes["features.3"].groups is None
    facts = facts_of(data)
    assert (facts.model.producer, facts.model.form) == ("torch.ao (eager)", "statically quantized state dict")
    assert facts.risks == ()


def test_an_eager_module_says_more(static):
    nodes = nodes_of(saved(static))
    check_static(nodes, static)
    assert (nodes["features.0"].activation, nodes["features.3"].groups) == ("relu", 8)
    assert nodes["act"].op is Op.HARDSWISH
    assert nodes["add"].target == "torch.ao.nn.quantized.modules.functional_modules.QFunctional"


def test_a_graph_mode_state_dict_and_module():
    model = graph()
    for value, form in ((model.state_dict(), "state dict"), (model, "module")):
        data = saved(value)
        nodes = nodes_of(data)
        facts = facts_of(data)
        assert (facts.model.producer, facts.model.form) == ("torch.ao (FX)", f"statically quantized {form}")
        scale = nodes["features_0_input_scale_0"].operand(Role.OUTPUT).quantization
        assert scale.scale == (pytest.approx(model.features_0_input_scale_0.item()),)
        assert nodes["features.0"].compute is nodes["fc"].compute is Compute.STATIC
    assert facts.kind is FileKind.MODULE
    assert nodes["features.0"].activation == "relu"


@pytest.mark.parametrize("is_module", [False, True])
def test_dynamic_layers(is_module):
    model = dynamic()
    nodes = nodes_of(saved(model if is_module else model.state_dict()))
    names = ["fc", "lstm._all_weight_values.0.param.ih", "lstm._all_weight_values.0.param.hh", "cell._packed_weight_ih"]
    for name in names:
        node = nodes[name]
        read = node.operand(Role.INPUT).quantization
        assert (node.op, node.compute) == (Op.LINEAR, Compute.DYNAMIC)
        assert (read.dtype, read.qmin, read.qmax, read.scale, read.zero_point) == ("uint8", 0, 127, None, None)
    weight = nodes["fc"].operand(Role.WEIGHT)
    assert weight.quantization.scale == (model.fc.weight().q_scale(),)
    assert weight.tensor.shape == (3, 5)
    assert nodes["emb"].compute is nodes["rest"].compute is Compute.FLOAT
    assert ("taken for dynamic" in nodes["fc"].note) != is_module
    form = facts_of(saved(model.state_dict())).model.form
    assert form == "dynamically quantized state dict"


@pytest.mark.parametrize("engine", ["fbgemm", "x86", "onednn"])
def test_dynamic_layers_of_torch_take_half_the_range(engine):
    """The source of the range: 0.4 of 255 is no step of 127, and a step of 255."""
    before = torch.backends.quantized.engine
    if engine not in torch.backends.quantized.supported_engines:
        assert engine != "fbgemm" or torch.backends.quantized.supported_engines == ["qnnpack"]
        return
    torch.backends.quantized.engine = engine
    try:
        with warnings.catch_warnings(action="ignore"):
            layer = ao.quantize_dynamic(nn.Sequential(nn.Linear(2, 2, bias=False)), {nn.Linear})
            weight = torch.quantize_per_tensor(torch.eye(2), 1.0, 0, torch.qint8)
            layer[0].set_weight_bias(weight, None)
        assert layer(torch.tensor([[255.0, 1.0]])).tolist() == [[255.0, 0.0]]
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize("is_module", [False, True])
def test_float16_layers(is_module, monkeypatch):
    monkeypatch.setattr(torch.backends.quantized, "engine", "fbgemm")  # qnnpack has no layers in float16
    model = dynamic(torch.float16)
    data = saved(model if is_module else model.state_dict())
    for name in ("fc", "lstm._all_weight_values.0.param.ih", "cell._packed_weight_hh"):
        node = nodes_of(data)[name]
        assert node.compute is Compute.WEIGHT_ONLY
        assert node.operand(Role.WEIGHT).quantization is None
        assert "float16" in node.note
    assert facts_of(data).model.form == f"{'module' if is_module else 'state dict'} with float16 weights"


@pytest.mark.parametrize("is_module", [False, True])
def test_embeddings(is_module):
    with warnings.catch_warnings(action="ignore"):
        model = nn.Sequential(nn.Embedding(10, 4), nn.EmbeddingBag(10, 4))
        model.qconfig = ao.float_qparams_weight_only_qconfig
        model = ao.convert(ao.prepare(model))
    nodes = nodes_of(saved(model if is_module else model.state_dict()))
    for name in ("0", "1"):
        weight = nodes[name].operand(Role.WEIGHT)
        assert nodes[name].compute is Compute.WEIGHT_ONLY
        assert (weight.tensor.dtype, weight.tensor.shape) == ("uint8", (10, 4))
        assert weight.quantization.scale.shape == (10,)


def test_layers_in_training_and_the_ranges_their_observers_tell():
    model = eager(training=True)
    data = saved(model.state_dict())
    nodes = nodes_of(data)
    facts = facts_of(data)
    assert (facts.model.producer, facts.model.form) == ("torch.ao (eager)", "training checkpoint (fake-quantized)")
    for name in ("features.0", "features.3", "fc"):
        layer, node = model.get_submodule(name), nodes[name]
        weight, output = (node.operand(role).quantization for role in (Role.WEIGHT, Role.OUTPUT))
        assert node.compute is Compute.FAKE_QUANTIZED
        assert (weight.qmin, weight.qmax, weight.axis) == (-128, 127, 0)
        assert (output.qmin, output.qmax) == (0, 127)
        assert output.scale == tuple(layer.activation_post_process.scale.tolist())
        assert output.zero_point == tuple(layer.activation_post_process.zero_point.tolist())
        assert node.note == ""
    assert nodes["up"].compute is Compute.FLOAT
    assert {"quant", "act", "add"} <= nodes.keys()
    assert "features.0.bn" not in nodes


def test_a_fake_quantized_layer_whose_range_is_nowhere_says_so():
    state = eager(training=True).state_dict()
    state["fc.weight_fake_quant.activation_post_process.max_val"] *= 3
    state["fc.weight_fake_quant.activation_post_process.min_val"] *= 3
    assert "range of codes" in nodes_of(saved(state))["fc"].note


@pytest.mark.parametrize(("build", "producer"), [(eager, "torch.ao (eager)"), (graph, "torch.ao (FX)")])
def test_observed_layers_are_float(build, producer):
    data = saved(build(observed=True).state_dict())
    model = facts_of(data).model
    assert (model.producer, model.form) == (producer, "calibration checkpoint (observed, not quantized yet)")
    assert {node.compute for node in model.nodes} == {Compute.FLOAT}
