import torch
from torch import nn

from qtool.workflows.calibrate import calibrate
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, conv


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
