"""What travels from step to step: through files, copies and checkpoints, under the caller's own ways."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import qtool
from qtool.errors import DtypeError, UsageError
from qtool.runtime.store import from_bytes, to_bytes
from qtool.types import Stage
from qtool.workflows.verify import verify
from tests.patterns import Lambda
from tests.runtime.training_steps import (
    GRANULARITIES,
    assert_same,
    batch,
    prepared_for_training,
    saved,
    shown,
    small_net,
    state,
    step,
    trained,
)

# --- what travels


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("num_steps", [0, 3])
def test_prepare_save_load_step_equals_the_step_without_the_round_trip(granularity, num_steps):
    here = trained(steps=num_steps, granularity=granularity).train()
    there = from_bytes(saved(here)).train()
    assert saved(there) == saved(here)
    assert torch.equal(step(here), step(there))
    gradients = {name: parameter.grad for name, parameter in there.named_parameters()}
    for name, parameter in here.named_parameters():
        assert torch.equal(parameter.grad, gradients[name])
    assert_same(state(here), state(there))


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


def through_state_dict(model):
    is_per_channel = any(point.fake_quantize.scale.dim() for point in model.weights.values())
    fresh = prepared_for_training(granularity="channel" if is_per_channel else "tensor")
    fresh.load_state_dict(model.state_dict())
    return fresh.train(model.training)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle, through_state_dict])
def test_a_round_trip_amid_the_passes_of_one_step_keeps_its_grid(way, granularity):
    """As amid gradient accumulation: the second pass computes on the grid of the first, copied or not."""
    here = trained(steps=3, granularity=granularity)
    step(here, data=batch(20))
    there = way(here)
    assert torch.equal(*(step(model, data=batch(21)) for model in (here, there)))
    assert_same(state(here), state(there))


@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle, through_state_dict])
def test_case_61_training_goes_on_bit_for_bit(way):
    """With the optimizer's state beside it, as a user's own loop does it; frozen parts stay frozen."""
    here = trained(steps=3)
    here.freeze_batch_norms()
    optimizer = torch.optim.SGD(here.parameters(), lr=0.02, momentum=0.9)
    step(here, optimizer)
    there = way(here)
    other = torch.optim.SGD(there.parameters(), lr=0.02, momentum=0.9)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(2):
        losses = [step(m, o, data=batch(number + 9)) for m, o in ((here, optimizer), (there, other))]
        assert torch.equal(*losses)
    assert_same(state(here), state(there))


def test_case_61_weights_of_another_shape_are_refused():
    wrong = state(trained(steps=1))
    name = "body.qtool/weights.head.fake_quantize.scale"
    wrong[name] = torch.ones(7)
    with pytest.raises(RuntimeError, match="size mismatch"):
        prepared_for_training().load_state_dict(wrong)


def test_a_trained_file_says_so_and_holds_no_second_copy_of_the_weights():
    prepared = prepared_for_training(
        nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300)), example=torch.randn(4, 300)
    )
    assert prepared.stage is Stage.PREPARED
    prepared.train()(torch.randn(4, 300))
    data = saved(prepared)
    assert qtool.inspect(data).stamp.stage is Stage.TRAINED
    assert len(data) < 1.2 * 300 * 300 * 4


def test_a_trained_model_keeps_its_grids_on_another_backend_or_is_refused():
    prepared = trained(backend="fbgemm").eval()
    x, _ = batch()
    assert torch.equal(qtool.convert(prepared, "x86")(x), prepared(x))
    with pytest.raises(UsageError, match="trained on the grids of fbgemm, and qnnpack has another one at"):
        qtool.convert(prepared, "qnnpack")


def test_case_55_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, i):
            return self.head(self.embed(i))

    torch.manual_seed(0)
    tied, i = Tied(), torch.tensor([1, 2, 3])
    prepared = prepared_for_training(tied, example=i).train()
    assert len(list(prepared.parameters())) == 1
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    for _ in range(3):
        prepared.zero_grad()
        prepared(i).square().sum().backward()
        optimizer.step()
    again = from_bytes(saved(prepared)).train()
    assert len(list(again.parameters())) == 1
    assert torch.equal(again.eval()(i), prepared.eval()(i))
    assert torch.equal(qtool.convert(again)(i), prepared(i))


def test_case_17_a_convolution_called_twice_has_one_weight_and_two_ranges():
    torch.manual_seed(0)
    model = Lambda(lambda m, x: m.a(m.a(x) * 50), a=nn.Conv2d(3, 3, 1))
    x = torch.randn(4, 3, 5, 5)
    prepared = prepared_for_training(model, example=x).train()
    shown(prepared, x, x, x)
    first, second = (float(prepared.activations[name].fake_quantize.scale) for name in ("a", "a#2"))
    assert second > 10 * first
    assert prepared.weights["a"] is prepared.weights["a#2"]
    assert len(list(prepared.parameters())) == 2
    assert max(verify(prepared.eval(), qtool.convert(prepared)).values()) <= 1


def legacy_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated; models that have it are still about
        return nn.utils.weight_norm(layer)


@pytest.mark.parametrize("weight_norm", [nn.utils.parametrizations.weight_norm, legacy_weight_norm])
def test_case_51_gradients_reach_what_a_weight_is_computed_from(weight_norm):
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)))
    x = torch.randn(4, 4)
    prepared = prepared_for_training(model, example=x).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    for _ in range(3):
        prepared.zero_grad()
        prepared(x).square().sum().backward()
        optimizer.step()
    assert all(float(p.grad.abs().sum()) > 0 for p in prepared.parameters())
    assert len(list(prepared.parameters())) == 3
    converted = qtool.convert(prepared.eval())
    assert torch.equal(converted(x), prepared(x))
    assert torch.equal(from_bytes(saved(prepared)).eval()(x), prepared(x))


def test_bytes_do_not_change_with_the_order_of_modes():
    prepared = trained()
    assert to_bytes(prepared) == to_bytes(prepared.eval())


# --- the caller's own ways


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_case_38_under_autocast_the_result_has_its_dtype_and_scales_stay_float32(dtype):
    torch.manual_seed(0)
    prepared = prepared_for_training(nn.Sequential(nn.Linear(4, 4)), example=torch.randn(8, 4)).train()
    x = torch.randn(8, 4)
    shown(prepared, x, x)
    plain = prepared(x).detach()
    with torch.autocast("cpu", dtype):
        out = prepared(x)
        assert out.dtype is dtype
        out.square().sum().backward()
    torch.testing.assert_close(out.float(), plain, atol=0.05, rtol=0.05)
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype is torch.float32 for p in prepared.parameters())
    kept = {name: tensor.dtype for name, tensor in prepared.named_buffers()}
    assert {dtype for name, dtype in kept.items() if name.endswith(("scale", ".low", ".high"))} == {torch.float32}
    assert {dtype for name, dtype in kept.items() if name.endswith("zero_point")} == {torch.int32}


def test_case_38_autocast_works_before_ranges_are_known_as_after():
    """PReLU has no type of its own under autocast, and torch's op of all convolutions is not cast at all."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    prepared = prepared_for_training(net, example=torch.randn(2, 3, 8, 8)).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            out = prepared(torch.randn(4, 3, 8, 8))
        assert out.dtype is torch.bfloat16
        out.float().square().mean().backward()
        optimizer.step()
    assert not prepared.uncalibrated()
    assert all(p.grad.dtype is torch.float32 and p.grad.isfinite().all() for p in prepared.parameters())


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_case_38_a_model_that_was_cast_trains_in_its_dtype_and_converts_from_float32(dtype, granularity):
    prepared, x = trained(steps=2, granularity=granularity).to(dtype), batch()[0].to(dtype)
    out = prepared(x)
    assert out.dtype is dtype
    out.float().square().mean().backward()
    assert all(p.grad.dtype is dtype and torch.isfinite(p.grad).all() for p in prepared.parameters())
    torch.optim.SGD(prepared.parameters(), lr=0.01).step()
    assert prepared(x).isfinite().all()
    for refused in (qtool.convert, saved, lambda model: model.eval()(x)):
        with pytest.raises(DtypeError, match=r"the model was cast to .*float16, and an int8 model .* call \.float"):
            refused(prepared)
    prepared.float().eval()
    assert torch.equal(qtool.convert(prepared)(batch()[0]), prepared(batch()[0]))


@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_case_38_casting_the_model_rounds_no_scale_and_no_statistic(cast):
    prepared = trained(steps=2)
    parts = ("scale", "zero_point", "low", "high", "num_batches", "average_low", "average_high")
    before = {name: t for name, t in state(prepared).items() if name.endswith(parts)}
    after = state(cast(prepared))
    assert all(
        torch.equal(after[name], tensor) and after[name].dtype == tensor.dtype for name, tensor in before.items()
    )


def test_under_autocast_it_computes_in_bfloat16_and_learns():
    prepared = trained(steps=2)
    with torch.autocast("cpu", torch.bfloat16):
        out = prepared(batch()[0])
        assert out.dtype is torch.bfloat16
        cross_entropy(out, batch()[1]).backward()
        assert prepared.eval()(batch()[0]).dtype is torch.float32  # eval says what the int8 model computes
    assert all(torch.isfinite(p.grad).all() for p in prepared.parameters())
    assert {b.dtype for n, b in prepared.named_buffers() if n.endswith("scale")} == {torch.float32}


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_checkpointed_step_is_the_step(use_reentrant, granularity):
    """Statistics are taken once, not again when the segment is recomputed in backward."""
    here, there = trained(granularity=granularity), trained(granularity=granularity)
    x, labels = batch()
    for model in (here, there):
        model.zero_grad()
        torch.manual_seed(0)
        given = x.clone().requires_grad_()
        out = model(given) if model is here else checkpoint(model, given, use_reentrant=use_reentrant)
        cross_entropy(out, labels).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(here.parameters(), there.parameters(), strict=True))
    assert_same(state(here), state(there))


def test_moving_to_another_dtype_and_back_keeps_both_graphs_on_one_set_of_tensors():
    prepared = trained()
    prepared.to(torch.float64).to(torch.float32)
    step(prepared, torch.optim.SGD(prepared.parameters(), lr=0.1))
    x, _ = batch()
    assert torch.equal(from_bytes(saved(prepared)).eval()(x), prepared.eval()(x))
    assert torch.equal(qtool.convert(prepared)(x), prepared(x))


def test_a_layer_that_does_not_learn_stays_so():
    net = small_net()
    net.stem.requires_grad_(False)
    prepared = from_bytes(saved(prepared_for_training(net)))
    frozen = {name for name, p in prepared.named_parameters() if not p.requires_grad}
    assert frozen == {"body.stem.0.weight", "body.stem.1.weight", "body.stem.1.bias"}


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_two_checkpointed_passes_before_one_backward_have_the_gradients_of_two_plain_ones(granularity):
    here, there = trained(granularity=granularity), trained(granularity=granularity)
    x, labels = batch()
    for model in (here, there):
        model.zero_grad()
        torch.manual_seed(0)
        run = model if model is here else lambda x, m=model: checkpoint(m, x, use_reentrant=False)
        (cross_entropy(run(x), labels) + cross_entropy(run(x * 4), labels)).backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(here.parameters(), there.parameters(), strict=True))
