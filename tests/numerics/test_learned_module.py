"""FakeQuantize with a scale that learns."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from qtool.errors import RangeError, UsageError
from qtool.numerics.module import FakeQuantize
from qtool.numerics.qparams import SCALE_FLOOR, QParams, affine_qparams, symmetric_qparams
from qtool.types import Dtype, FixedParameters, Granularity, Spec

ACTIVATION = Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, reduce_range=True)
WEIGHT = Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, granularity=Granularity.CHANNEL, axis=0, symmetric=True)


def activation_module():
    module = FakeQuantize(ACTIVATION, has_batch=True)
    module.set_qparams(affine_qparams(-1.0, 2.0, 0, 127))
    module.learn_scale()
    return module


def weight_module():
    module = FakeQuantize(WEIGHT, num_channels=3)
    module.set_qparams(symmetric_qparams(torch.tensor([0.1, 0.7, 3.0]), -127, 127))
    module.learn_scale()
    return module


def moved(module, steps=2):
    """Take some steps, the last one after the last pass."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        optimizer.zero_grad()
        (module(x) - x).square().sum().backward()
        optimizer.step()
    return module


every = pytest.mark.parametrize("make", [activation_module, weight_module])


@every
def test_nothing_changes_until_an_optimizer_moves_the_scale(make):
    module, x = make(), torch.randn(3, 50)
    before = module.scale.clone()
    y = module(x)
    assert torch.equal(module.scale, before)
    module.learn_scale(False)
    assert list(module.parameters()) == []
    assert torch.equal(module(x), y.detach())


@every
def test_the_error_falls(make):
    module, x = make(), torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 2
    optimizer, errors = torch.optim.SGD(module.parameters(), lr=1e-4), []
    for _ in range(50):
        optimizer.zero_grad()
        error = (module(x) - x).square().sum()
        error.backward()
        optimizer.step()
        errors.append(float(error.detach()))
    assert errors[-1] < 0.9 * errors[0]


@every
def test_the_buffer_follows_the_parameter(make):
    module = moved(make())
    before = module.scale.clone()
    module.refresh_scale()
    assert not torch.equal(module.scale, before)
    assert torch.equal(module.scale, module.trained_scale().detach())
    module = moved(make())
    assert torch.equal(module.state_dict()["scale"], module.trained_scale().detach())
    module = moved(make())
    with torch.no_grad():
        module(torch.randn(3, 4))
    assert torch.equal(module.scale, module.trained_scale().detach())


def through_state_dict(module):
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = FakeQuantize(module.spec, num_channels=3 if module.spec.axis == 0 else None, has_batch=module.has_batch)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@every
@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_state_dict])
def test_copies_go_on_bit_for_bit(make, way):
    here = moved(make())
    there = way(here)
    assert there.shift is not here.shift
    for module in (moved(here), moved(there)):
        module.refresh_scale()
    assert torch.equal(here.scale, there.scale)
    assert torch.equal(here.shift, there.shift)


@every
def test_set_qparams_begins_anew_with_the_same_parameter(make):
    module = moved(make())
    parameter, double = module.shift, QParams(module.scale * 2, module.zero_point.clone())
    module.set_qparams(double)
    assert module.shift is parameter
    assert (module.shift == 0).all()
    assert torch.equal(module.scale, double.scale)
    assert torch.equal(module.trained_scale().detach(), double.scale)


@every
@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_casting_keeps_every_bit(make, cast):
    module = moved(make())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    after = cast(nn.Sequential(module))[0].state_dict()
    assert all(torch.equal(before[name], after[name]) and before[name].dtype == after[name].dtype for name in before)


def test_a_scale_that_does_not_follow_gets_no_gradient():
    module, x = activation_module(), torch.randn(3, 50, requires_grad=True)
    module.follows = False
    module(x).sum().backward()
    assert module.shift.grad is None
    assert x.grad is not None


def test_two_modules_can_learn_one_scale():
    first, second = activation_module(), FakeQuantize(ACTIVATION)
    second.share_learned_scale(first)
    assert second.shift is first.shift
    moved(first)
    for module in (first, second):
        module.refresh_scale()
    assert torch.equal(first.scale, second.scale)
    with pytest.raises(UsageError, match="only a scale that learns"):
        first.share_learned_scale(FakeQuantize(ACTIVATION))


def test_a_channel_of_zeros_begins_with_the_smallest_of_the_others():
    module = FakeQuantize(WEIGHT, num_channels=3)
    module.set_qparams(symmetric_qparams(torch.tensor([0.0, 0.7, 3.0]), -127, 127))
    assert float(module.scale[0]) == SCALE_FLOOR
    module.learn_scale()
    assert float(module.scale[0]) == float(module.scale[1])
    assert (module(torch.zeros(3, 2)) == 0).all()


def test_the_batch_is_not_counted():
    module, x = activation_module(), torch.randn(8, 5, 4)
    assert module.elements_per_scale(x) == 20
    assert weight_module().elements_per_scale(torch.randn(3, 5, 4)) == 20
    assert module.elements_per_scale(torch.empty(0, 4)) == 0


def test_a_fixed_scale_is_not_learned():
    spec = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, fixed=FixedParameters(scale=1 / 256, zero_point=0))
    with pytest.raises(UsageError, match=r"fixed at 0\.00390625, for it follows from the op"):
        FakeQuantize(spec).learn_scale()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("start", torch.tensor(0.0), r"^0\.start is 0\.0: it must lie in"),
        ("shift", torch.tensor(float("nan")), r"^0\.shift is nan: it must lie in the finite numbers"),
        ("shift", torch.zeros(2), r"^0\.start of shape \(\) and shift of shape \(2,\) do not fit"),
    ],
)
def test_what_is_loaded_is_checked(name, value, message):
    model = nn.Sequential(activation_module())
    with pytest.raises(RangeError, match=message):
        model.load_state_dict(model.state_dict() | {f"0.{name}": value})


def test_repr_says_that_it_learns():
    assert repr(activation_module()) == "FakeQuantize(uint8 0..127, per tensor, learned)"
