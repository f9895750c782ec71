import pytest
import torch
from torch import nn

from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, conv, make_pattern, tied


def test_a_group_covers_what_all_its_members_saw():
    """Of a cat of a small and a large branch, whichever comes first, the scale holds both."""
    torch.manual_seed(0)
    small, large = conv(), conv()
    large.weight.data *= 50
    x = torch.randn(4, 4, 9, 9)
    for first, second in (("a", "b"), ("b", "a")):
        model = Lambda(
            lambda m, x, f=first, s=second: torch.cat([getattr(m, f)(x), getattr(m, s)(x)], 1), a=small, b=large
        ).eval()
        prepared = prepare(model, x, {"target": {"backend": "qnnpack"}})
        calibrate(prepared, [x])
        points = {name: prepared.activations[name] for name in ("a", "b", "cat")}
        scales = {float(point.fake_quantize.scale) for point in points.values()}
        assert len(scales) == 1
        low = min(float(point.observer.low) for point in points.values())
        high = max(float(point.observer.high) for point in points.values())
        assert scales.pop() * 255 >= (high - low) * 0.999
        error = (prepared(x) - model(x)).abs().max()
        assert error <= 2 * (high - low) / 255


def test_a_weight_leaves_room_for_its_bias():
    """Case 15: a dead channel with a bias."""
    layer = nn.Linear(4, 2)
    layer.weight.data[0] = 0
    layer.bias.data[0] = 5.0
    x = torch.randn(8, 4)
    prepared = prepare(layer.eval(), x, {"target": {"backend": "qnnpack"}})
    calibrate(prepared, [x])
    (point,) = prepared.weights.values()
    unit = point.fake_quantize.scale.double() * float(prepared.activations["input"].fake_quantize.scale)
    assert (layer.bias.double().abs() / unit <= 2**30).all()


def converted(model, x, backend="qnnpack"):
    prepared = prepare(model.eval(), x, {"target": {"backend": backend}})
    calibrate(prepared, [x])
    return prepared, convert(prepared)


def scale_of(prepared, edge):
    return float(prepared.activations[edge].fake_quantize.scale)


def test_case_17_one_relu_after_two_convolutions_has_a_range_at_each():
    torch.manual_seed(0)
    small, large = conv(), conv()
    large.weight.data *= 100
    model = Lambda(lambda m, x: (m.r(m.a(x)), m.r(m.b(x))), a=small, b=large, r=nn.ReLU())
    x = torch.randn(4, 4, 9, 9)
    prepared, _ = converted(model, x)
    assert scale_of(prepared, "b") > 50 * scale_of(prepared, "a")
    for found, expected, edge in zip(prepared(x), model(x), ("a", "b"), strict=True):
        assert (found - expected).abs().max() <= 4 * scale_of(prepared, edge)


def test_case_17_one_convolution_called_twice_has_one_weight_and_two_ranges():
    model, x = make_pattern("called_twice")
    prepared, done = converted(model, x)
    assert scale_of(prepared, "a") != scale_of(prepared, "a#2")
    assert prepared.weights["a"] is prepared.weights["a#2"]
    assert [name for name, tensor in done.exported.state_dict.items() if tensor.dtype is torch.int8] == [
        "a.int8.weight"
    ]


def test_case_16_a_cat_and_its_inputs_have_one_scale_in_the_file():
    _, done = converted(*make_pattern("cat"))
    stamp = from_bytes(to_bytes(done)).stamp
    (cat,) = [node for node in stamp.nodes if node.name == "cat"]
    assert len({(t.scale_min, t.scale_max, t.zero_point_min) for t in (*cat.inputs, cat.output)}) == 1


@torch.no_grad()
@pytest.mark.parametrize("backend", ["qnnpack", "fbgemm"])
def test_case_31_calibration_does_not_change_a_known_range(backend):
    """Calibrated on logits that are all alike, run on others in the same range."""
    model = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Softmax(-1))
    model[0].weight.data = torch.eye(16)
    alike, peaked = torch.linspace(5.8, 6.0, 16).repeat(4, 1), 6 * torch.eye(16)
    prepared, done = converted(model, alike, backend)
    again = from_bytes(to_bytes(done))
    assert float(model(alike).max()) < 0.1
    assert float(model(peaked).max()) > 0.9
    for probabilities in (prepared(peaked), done(peaked), again(peaked)):
        assert (probabilities - model(peaked)).abs().max() <= 1 / 256
    assert (scale_of(prepared, "1"), int(prepared.activations["1"].fake_quantize.zero_point)) == (1 / 256, 0)
    output = next(node.output for node in again.stamp.nodes if node.name == "1")
    assert (output.scale_min, output.scale_max, output.zero_point_min) == (1 / 256, 1 / 256, 0)
    assert to_bytes(from_bytes(to_bytes(prepared))) == to_bytes(prepared)


def test_case_55_a_tied_weight_is_stored_once_where_it_is_quantized_the_same():
    model = tied(nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)))
    prepared, done = converted(model, torch.randn(8, 6))
    assert prepared.weights["0"] is prepared.weights["1"]
    assert sum(tensor.dtype is torch.int8 for tensor in done.exported.state_dict.values()) == 1
    assert len(to_bytes(done)) < len(
        to_bytes(converted(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), torch.randn(8, 6))[1])
    )


def test_case_11_per_channel_scales_of_a_transposed_convolution():
    """One input channel a hundred times the others moves no scale; one output channel moves its own."""
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(4, 6, 3)
    layer.weight.data[:, 2] *= 100
    x = torch.randn(4, 4, 8, 8)
    prepared, done = converted(layer, x)
    (point,) = prepared.weights.values()
    assert point.fake_quantize.scale.shape == (6,)
    expected = layer.weight.detach().abs().amax((0, 2, 3)) / 127
    torch.testing.assert_close(point.fake_quantize.scale, expected)
    assert (done(x) - layer(x)).abs().max() <= 4 * next(iter(prepared.activations.values())).fake_quantize.scale * 100


class MaskedProbabilities(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mask", torch.full((4, 4), mask).triu(1))

    def forward(self, x):
        return (self.q(x) @ self.k(x).transpose(1, 2) + self.mask).softmax(-1)


@torch.no_grad()
@pytest.mark.parametrize("mask", [float("-inf"), torch.finfo().min])
def test_case_30_a_mask_squashes_no_probability(mask):
    torch.manual_seed(0)
    model, x = MaskedProbabilities(mask), torch.randn(3, 4, 8)
    _, done = converted(model, x, "fbgemm")
    found, expected = done(x), model(x)
    assert float(found[:, model.mask < 0].max()) < 1e-3
    assert (found - expected).abs().max() <= 0.02
