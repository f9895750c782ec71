"""Insert: which layers share a weight point."""

import torch
from torch import nn

from qtool.workflows.calibrate import calibrate
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, conv, trained_batch_norm

CONFIG = {"target": {"backend": "qnnpack"}}


def test_one_convolution_with_two_batch_norms_has_two_weights():
    torch.manual_seed(0)
    first, second = trained_batch_norm(nn.BatchNorm2d, 8), nn.BatchNorm2d(8, eps=1.0)
    model = Lambda(lambda m, x: m.first(m.a(x)) + m.second(m.a(x)), a=conv(), first=first, second=second).eval()
    x = torch.randn(4, 4, 9, 9)
    prepared = prepare(model, x, CONFIG)
    calibrate(prepared, [x])
    assert prepared.weights["a"] is not prepared.weights["a#2"]
    with torch.no_grad():
        error = float((prepared(x) - model(x)).abs().max() / model(x).abs().max())
    assert error < 0.03


def test_batch_norms_that_differ_in_eps_alone_are_two():
    torch.manual_seed(0)
    first, second = nn.BatchNorm2d(8, eps=1e-5), nn.BatchNorm2d(8, eps=1e-1)
    for name in ("weight", "bias"):
        setattr(second, name, getattr(first, name))
    for name in ("running_mean", "running_var"):
        setattr(second, name, getattr(first, name))
    model = Lambda(lambda m, x: m.first(m.a(x)) + m.second(m.a(x)), a=conv(), first=first, second=second).eval()
    prepared = prepare(model, torch.randn(4, 4, 9, 9), CONFIG)
    assert prepared.weights["a"] is not prepared.weights["a#2"]


def test_a_weight_of_two_calls_leaves_room_for_its_bias_at_both():
    """Case 15, where the second call reads values a thousand times smaller: its scale is the one that counts."""
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 3, 1)
    layer.weight.data[0], layer.bias.data[0] = 0.0, 5.0
    model = Lambda(lambda m, x: m.a(m.a(x) * 1e-3), a=layer).eval()
    x = torch.randn(4, 3, 6, 6)
    prepared = prepare(model, x, CONFIG)
    calibrate(prepared, [x])
    (point,) = set(prepared.weights.values())
    for node in prepared.plan.int8_nodes():
        if node.name in prepared.weights:
            unit = point.fake_quantize.scale.double() * float(prepared.activations[node.inputs[0]].fake_quantize.scale)
            assert (layer.bias.detach().double().abs() / unit <= 2**30).all()
