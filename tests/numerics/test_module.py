import copy
import io
import pickle

import pytest
import torch
from torch import nn

from qtool.errors import DtypeError, RangeError
from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.module import FakeQuantize
from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR, QParams, affine_qparams, symmetric_qparams
from qtool.types import Dtype, FixedParameters, Granularity, Spec

ACTIVATION = Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, reduce_range=True)
FULL = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255)
WEIGHT = Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, granularity=Granularity.CHANNEL, axis=0, symmetric=True)


def activation_module(lo=-1.0, hi=2.0):
    module = FakeQuantize(ACTIVATION)
    module.set_qparams(affine_qparams(lo, hi, 0, 127))
    return module


def weight_module():
    module = FakeQuantize(WEIGHT, num_channels=3)
    module.set_qparams(symmetric_qparams(torch.tensor([0.1, 0.7, 3.0]), -127, 127))
    return module


def same_state(a, b):
    return (
        torch.equal(a.scale, b.scale)
        and torch.equal(a.zero_point, b.zero_point)
        and (a.scale.dtype, a.zero_point.dtype) == (b.scale.dtype, b.zero_point.dtype)
        and (a.enabled, a.spec) == (b.enabled, b.spec)
    )


def with_scale(scale, zero_point=0):
    return QParams(torch.tensor(scale), torch.tensor(zero_point))


def test_case_07_the_spec_is_the_only_source_of_the_range():
    module = activation_module(0.0, 1.27)
    assert module.scale.item() == pytest.approx(0.01)
    assert module(torch.tensor([2.0])).item() == pytest.approx(1.27)  # clamped at 127, not at 255
    assert not {"qmin", "qmax", "quant_min", "quant_max", "reduce_range"} & set(vars(module))


def test_case_07_a_contradiction_names_both_values():
    with pytest.raises(RangeError, match="qmin=0 and qmax=255") as caught:
        FakeQuantize(Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, reduce_range=True))
    assert isinstance(caught.value, ValueError)
    assert "reduce_range" in str(caught.value)


def test_case_14_forward_uses_the_stored_scale_bit_for_bit():
    module = FakeQuantize(Spec(dtype=Dtype.INT8, qmin=-128, qmax=127, symmetric=True))
    module.set_qparams(symmetric_qparams(2.533506, -128, 127))
    x = torch.tensor([-1.149422, 2.533506])
    one_step = fake_quantize(torch.tensor(1e-2), module.scale, module.zero_point, -128, 127)
    assert torch.equal(module(torch.tensor(1e-2)), one_step)
    assert one_step.item() == module.scale.item()
    assert torch.equal(module(x), torch.tensor([-58.0, 127.0]) * module.scale)


def test_per_channel_forward_and_gradient():
    module, x = weight_module(), torch.randn(3, 4, requires_grad=True)
    module(x).sum().backward()
    inside = (x.detach().abs() / module.scale.view(3, 1)).round() <= 127
    assert torch.equal(x.grad, inside.float())


def test_disabled_passes_the_input_itself():
    module, x = activation_module(), torch.randn(3)
    module.enabled = False
    assert module(x) is x
    assert "disabled" in repr(module)


@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16, nn.Module.double, nn.Module.float])
@pytest.mark.parametrize("make", [activation_module, weight_module])
def test_case_25_casting_the_model_keeps_scale_and_zero_point(cast, make):
    module = make()
    model = cast(nn.Sequential(nn.Linear(3, 3), module))
    assert same_state(model[1], make())
    assert same_state(model.to(torch.float16)[1], make())
    assert same_state(model.to("cpu", torch.float64).type(torch.float16)[1], make())
    assert model[0].weight.dtype == torch.float16


def test_moving_to_another_device_still_works():
    moved = weight_module().to("meta")
    assert moved.scale.device.type == "meta"
    assert moved.to_empty(device="cpu").scale.dtype == torch.float32


@pytest.mark.parametrize("make", [activation_module, weight_module])
@pytest.mark.parametrize("enabled", [True, False])
def test_copies_are_equal_bit_for_bit(make, enabled):
    module = make()
    module.enabled = enabled
    assert same_state(copy.deepcopy(module), module)
    assert same_state(pickle.loads(pickle.dumps(module)), module)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = FakeQuantize(module.spec, num_channels=3 if module.spec.axis == 0 else None)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert same_state(fresh, module)


def test_a_copy_shares_nothing():
    module = activation_module()
    other = copy.deepcopy(module)
    other.set_qparams(affine_qparams(0.0, 9.0, 0, 127))
    assert same_state(module, activation_module())


@pytest.mark.parametrize("assign", [True, False])
def test_case_25_old_checkpoints_are_brought_to_float32_and_int32(assign):
    module = FakeQuantize(ACTIVATION)
    state = module.state_dict() | {
        "scale": torch.tensor(0.1, dtype=torch.float64),
        "zero_point": torch.tensor(12, dtype=torch.int64),
    }
    module.load_state_dict(state, assign=assign)
    assert (module.scale.dtype, module.zero_point.dtype) == (torch.float32, torch.int32)
    assert (module.scale.item(), module.zero_point.item()) == (torch.tensor(0.1).item(), 12)


def test_case_25_other_dtypes_are_refused():
    module = FakeQuantize(ACTIVATION)
    with pytest.raises(DtypeError, match=r"scale is torch\.int64") as caught:
        module.set_qparams(with_scale(1))
    assert isinstance(caught.value, TypeError)
    with pytest.raises(DtypeError, match=r"torch\.bool"):
        module.set_qparams(with_scale(1.0, True))


def test_case_25_loading_another_dtype_names_the_node():
    model = nn.Sequential(activation_module())
    with pytest.raises(DtypeError, match=r"^0: scale is torch\.int64"):
        model.load_state_dict(model.state_dict() | {"0.scale": torch.tensor(1)})
    assert same_state(model[0], activation_module())


@pytest.mark.parametrize(("fraction", "rounded"), [(0.4, 0), (1.6, 2), (2.5, 2), (3.5, 4)])
def test_case_26_a_fractional_zero_point_is_rounded_half_to_even(fraction, rounded):
    module = FakeQuantize(ACTIVATION)
    module.set_qparams(with_scale(0.1, fraction))
    assert module.zero_point.item() == rounded
    assert module(torch.zeros(1)).item() == 0.0


def test_case_26_per_channel_too_and_when_loaded():
    spec = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, granularity=Granularity.CHANNEL, axis=-1)
    module, zero_point = FakeQuantize(spec, 4), torch.tensor([0.4, 1.6, 2.5, 3.5])
    module.set_qparams(QParams(torch.full((4,), 0.1), zero_point))
    loaded = FakeQuantize(spec, 4)
    loaded.load_state_dict(module.state_dict() | {"zero_point": zero_point})
    for each in (module, loaded):
        assert each.zero_point.tolist() == [0, 2, 2, 4]
        assert each(torch.zeros(2, 4)).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize(
    "scale", [0.0, -0.0, -1.0, 1e-40, SCALE_FLOOR / 2, SCALE_CEILING * 2, float("inf"), float("nan")]
)
def test_case_24_a_scale_without_a_safe_reciprocal_is_refused(scale):
    module = activation_module()
    with pytest.raises(RangeError, match=r"scale is .* it must lie in 1\.08e-19"):
        module.set_qparams(with_scale(scale))
    assert same_state(module, activation_module())


@pytest.mark.parametrize("zero_point", [-1, 128, 200, 2**40, float("nan"), float("inf")])
def test_case_27_a_zero_point_outside_the_range_is_refused(zero_point):
    module = activation_module()
    with pytest.raises(RangeError, match=r"zero_point is .* it must lie in 0\.\.127"):
        module.set_qparams(with_scale(0.1, zero_point))
    assert same_state(module, activation_module())


def test_case_27_loading_is_checked_too_and_names_the_node():
    model = nn.Sequential(activation_module())
    state = model.state_dict() | {"0.zero_point": torch.tensor(200, dtype=torch.int32)}
    with pytest.raises(RangeError, match=r"^0: zero_point is 200"):
        model.load_state_dict(state)
    assert same_state(model[0], activation_module())


def test_a_channel_is_named():
    with pytest.raises(RangeError, match=r"scale of channel 1 is 0\.0 \(and 1 more\)"):
        weight_module().set_qparams(QParams(torch.tensor([1.0, 0.0, 0.0]), torch.zeros(3, dtype=torch.int32)))
    with pytest.raises(RangeError, match=r"zero_point of channel 2 is 5: it must lie in 0\.\.0"):
        weight_module().set_qparams(QParams(torch.ones(3), torch.tensor([0, 0, 5])))


def test_case_61_the_number_of_channels_cannot_change():
    with pytest.raises(RangeError, match=r"\(4,\).*must be of shape \(3,\)"):
        weight_module().set_qparams(QParams(torch.ones(4), torch.zeros(4, dtype=torch.int32)))
    four = FakeQuantize(WEIGHT, num_channels=4)
    with pytest.raises(RuntimeError, match="size mismatch"):
        weight_module().load_state_dict(four.state_dict())


def test_missing_keys_are_reported_by_torch():
    with pytest.raises(RuntimeError, match="Missing key"):
        activation_module().load_state_dict({"scale": torch.tensor(0.1)})


def test_granularity_and_num_channels_must_agree():
    with pytest.raises(RangeError, match="'channel' with num_channels=None"):
        FakeQuantize(WEIGHT)
    with pytest.raises(RangeError, match="'tensor' with num_channels=3"):
        FakeQuantize(FULL, num_channels=3)


def test_new_module_has_scale_one_and_a_zero_point_in_range():
    assert FakeQuantize(FULL)(torch.tensor([3.2])).item() == 3.0
    assert FakeQuantize(Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, symmetric=True)).zero_point.item() == 128
    assert FakeQuantize(WEIGHT, 2).zero_point.tolist() == [0, 0]


def test_repr_says_what_it_does():
    assert repr(activation_module()) == "FakeQuantize(uint8 0..127, per tensor)"
    assert repr(weight_module()) == "FakeQuantize(int8 -127..127, 3 channels on axis 0)"


FIXED = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, fixed=FixedParameters(scale=1 / 128, zero_point=128))


def test_case_31_fixed_parameters_stand_from_the_start_and_never_change():
    module = FakeQuantize(FIXED)
    assert (float(module.scale), int(module.zero_point)) == (1 / 128, 128)
    module.set_qparams(QParams(torch.tensor(1 / 128), torch.tensor(128)))
    with pytest.raises(RangeError, match=r"they are fixed at 0\.0078125 and 128"):
        module.set_qparams(QParams(torch.tensor(1 / 64), torch.tensor(128)))
    with pytest.raises(RangeError, match=r"they are fixed at 0\.0078125 and 128"):
        module.load_state_dict({**module.state_dict(), "zero_point": torch.tensor(0, dtype=torch.int32)})
