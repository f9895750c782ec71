"""A prepared model that is trained: what it computes, and what it changes."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import qtool
from qtool.errors import CaptureError, NonFiniteError, SmallBatchError, UncalibratedError, UsageError
from qtool.numerics.module import FakeQuantize
from qtool.passes.points import Mode
from qtool.types import Stage, Verdict
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

# --- what it computes


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_case_35_without_fake_quantize_it_is_the_float_model_in_both_modes(granularity):
    """Batch norms with gamma 0, 1e-12 and negative among them: loss, gradients and running statistics to 1e-5."""
    net = small_net()
    prepared = prepared_for_training(granularity=granularity)
    prepared.set_mode(Mode.FLOAT)
    x, _ = batch()
    torch.testing.assert_close(prepared.eval()(x), net.eval()(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(step(prepared.train()), step(net.train()), atol=1e-5, rtol=1e-5)
    gradients = dict(prepared.named_parameters())
    for name, parameter in net.named_parameters():
        assert torch.isfinite(parameter.grad).all()
        torch.testing.assert_close(gradients[f"body.{name}"].grad, parameter.grad, atol=1e-5, rtol=1e-5)
    buffers = dict(prepared.named_buffers())
    for name, buffer in net.named_buffers():
        torch.testing.assert_close(buffers[f"body.{name}"], buffer, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_case_35_loss_and_gradients_stay_finite_and_reach_every_parameter(granularity):
    prepared = trained(granularity=granularity)
    for name, parameter in prepared.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
    gammas = [p.grad for n, p in prepared.named_parameters() if n.endswith("1.weight")]
    assert all(bool(grad[0] != 0) for grad in gammas)  # a gamma of zero can leave zero


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_the_int8_model_is_the_trained_one(granularity, backend):
    """The reference program equals eval mode bit for bit; on the engine no node is more than a step off."""
    prepared = trained(granularity=granularity, backend=backend).eval()
    converted = qtool.convert(prepared)
    x, _ = batch()
    assert torch.equal(converted(x), prepared(x))
    assert max(verify(prepared, converted).values()) <= 1
    assert max(verify(prepared, converted, (x,)).values()) <= 1


def test_case_14_scales_and_codes_are_those_of_the_last_training_step(monkeypatch):
    prepared = trained()
    names = {id(point.fake_quantize): name for name, point in prepared.activations.items()}
    grid, seen = FakeQuantize.grid, {}

    def remembered(fake_quantize):
        if id(fake_quantize) in names:
            seen[names[id(fake_quantize)]] = fake_quantize.scale.clone()
        return grid(fake_quantize)

    monkeypatch.setattr(FakeQuantize, "grid", remembered)
    step(prepared)
    found = qtool.convert(prepared.eval()).stamp
    stamped = {t.edge: t.scale_min for node in found.int8_nodes() for t in (*node.inputs, node.output) if t}
    assert len(seen) == 5
    assert set(seen) <= set(stamped)  # the pool moves values, and is not called in training
    assert {name: float(scale) for name, scale in seen.items()} == {name: stamped[name] for name in seen}


def test_a_folded_scale_is_the_trained_one_times_gamma_over_the_deviation():
    prepared = trained()
    norm = dict(prepared.named_buffers())
    gamma = dict(prepared.named_parameters())["body.stem.1.weight"].detach().double()
    factor = gamma / (norm["body.stem.1.running_var"].double() + 1e-3).sqrt()
    point = prepared.weights["stem.0"]
    deployed = prepared.parameters_found().weights["stem.0"]
    expected = (point.fake_quantize.scale.double() * factor.abs()).float()
    alive = factor.abs() > 1e-6
    assert torch.equal(deployed.qparams.scale[alive], expected[alive])


# --- what it changes


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_case_34_eval_changes_nothing(granularity):
    prepared = trained(granularity=granularity).eval()
    before = state(prepared)
    first, second = prepared(batch()[0] * 100), prepared(batch()[0] * 100)
    assert torch.equal(first, second)
    assert_same(before, state(prepared))


def test_case_36_train_and_eval_any_number_of_times_change_no_literal():
    prepared = trained(steps=1)

    def literals():
        graphs = (prepared._prepared.module, prepared._training.module)
        points = prepared._training.batch_norms
        return [str(graph.graph) for graph in graphs], [(point.momentum, point.eps) for point in points]

    before = literals()
    for _ in range(3):
        prepared.train()
        prepared.eval()
    assert literals() == before
    assert (0.03, 1e-3) in before[1]
    dropouts = [node.args for node in prepared._training.module.graph.nodes if "dropout" in str(node.target)]
    assert [args[1:] for args in dropouts] == [(0.3, True)]


def test_case_43_statistics_of_a_batch_norm_are_no_activations():
    """A batch norm of its own: its running mean follows the data, and it reads plain tensors."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3))
    eager = copy.deepcopy(model).train()
    prepared = prepared_for_training(model, example=torch.randn(4, 3, 6, 6)).train()
    for number in range(3):
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(number)) + 5
        eager(x)
        shown(prepared, x)
    buffers = dict(prepared.named_buffers())
    assert torch.equal(buffers["body.0.running_mean"], eager[0].running_mean)
    assert torch.equal(buffers["body.0.running_var"], eager[0].running_var)
    assert int(buffers["body.0.num_batches_tracked"]) == 3
    observed = {edge.value for edge in prepared.plan.edges}
    assert not any("running" in name or "weight" in name for name in observed)


def test_case_44_linear_and_batch_norm_fold():
    torch.manual_seed(0)
    prepared = prepared_for_training(
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)), example=torch.randn(8, 4)
    )
    shown(prepared, *torch.randn(3, 8, 4))
    converted = qtool.convert(prepared.eval())
    assert not any("batch_norm" in str(node.target) for node in converted.exported.graph.nodes)
    assert max(verify(prepared, converted).values()) <= 1


def test_case_44_a_batch_norm_over_dimension_1_of_a_3d_linear_is_left_and_listed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(3))
    prepared = prepared_for_training(model, example=torch.randn(8, 3, 4))
    shown(prepared, *torch.randn(3, 8, 3, 4)).eval()
    verdicts = {node.name: node.verdict for node in prepared.plan.nodes}
    assert verdicts == {"0": Verdict.INT8, "1": Verdict.FLOAT}
    x = torch.randn(8, 3, 4)
    assert torch.equal(qtool.convert(prepared)(x), prepared(x))


def test_case_37_nothing_of_train_mode_is_left_in_the_int8_model():
    """Batch norm before the convolution as in DenseNet, and a dropout: same answer twice, alone and in a batch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5)
    )
    prepared = prepared_for_training(model, example=torch.randn(4, 3, 6, 6)).train()
    shown(prepared, *torch.randn(2, 4, 3, 6, 6))
    runtime = qtool.load(io.BytesIO(saved(qtool.convert(prepared.eval()))))
    x = torch.randn(8, 3, 6, 6)
    answers = runtime(x)
    assert torch.equal(runtime(x), answers)
    assert torch.equal(runtime(x[:1]), answers[:1])


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: nn.functional.dropout(m.a(x), 0.5), "is random, in eval mode too; give F.dropout training="),
        (lambda m, x: m.b(m.a(x)), "normalises with the statistics of the batch"),
    ],
)
def test_case_37_a_model_that_trains_in_eval_mode_is_refused(forward, message):
    model = Lambda(forward, a=nn.Linear(4, 4), b=nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(CaptureError, match=message):
        qtool.prepare(model.eval(), torch.randn(4, 4), {"target": {"backend": "fbgemm"}})


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_batch_norm_that_the_model_keeps_in_eval_mode_stays_so(granularity):
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    torch.manual_seed(0)
    model = Frozen(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model[1].running_mean.normal_()
    x = torch.randn(4, 3, 6, 6)
    prepared = prepared_for_training(model, granularity=granularity, example=x).train()
    prepared.set_mode(Mode.FLOAT)
    torch.testing.assert_close(prepared(x), model.train()(x), atol=1e-5, rtol=1e-5)
    prepared.fake_quantize()
    shown(prepared, x, x)
    assert torch.equal(dict(prepared.named_buffers())["body.1.running_mean"], model[1].running_mean)
    assert torch.equal(qtool.convert(prepared.eval())(x), prepared(x))


def test_a_dropout_before_the_batch_norm():
    """Eval mode folds the batch norm past it; a weight with one scale for both is refused, not trained wrong."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.2), nn.BatchNorm2d(4)), torch.randn(4, 3, 6, 6)
    prepared = prepared_for_training(model, example=x).train()
    shown(prepared, x, x, x)
    prepared.eval()
    assert torch.equal(qtool.convert(prepared)(x), prepared(x))
    with pytest.raises(UsageError, match="'0': train mode does something between the layer and its batch norm"):
        prepared_for_training(model, granularity="tensor", example=x)


def test_dropout_does_not_widen_the_range_of_what_it_is_flattened_to():
    prepared = trained(steps=3)
    (group,) = {edge.group for edge in prepared.plan.edges if edge.name == "flatten"}
    members = [edge.name for edge in prepared.plan.edges if edge.group == group]
    assert len({float(prepared.activations[name].fake_quantize.scale) for name in members}) == 1
    assert not prepared.activations["flatten"].has_seen_data
    assert prepared.activations["flatten"].is_calibrated


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_frozen_observers_keep_every_scale_and_frozen_batch_norms_their_statistics(granularity):
    prepared = trained(granularity=granularity)
    prepared.freeze_observers()
    prepared.freeze_batch_norms()
    fixed = [n for n in state(prepared) if "scale" in n or "zero_point" in n or "running" in n or "observer" in n]
    fixed += [n for n in state(prepared) if "num_batches" in n]
    before = state(prepared)
    step(prepared, torch.optim.SGD(prepared.parameters(), lr=0.1), data=batch(77))
    after = state(prepared)
    assert [name for name in fixed if not torch.equal(before[name], after[name])] == []
    assert not torch.equal(before["body.head.weight"], after["body.head.weight"])
    prepared.freeze_observers(False)
    step(prepared, data=(batch()[0] * 50, batch()[1]))
    step(prepared)
    assert not torch.equal(
        before["body.qtool/activations.x.fake_quantize.scale"],
        state(prepared)["body.qtool/activations.x.fake_quantize.scale"],
    )


def test_training_starts_from_calibrated_ranges():
    prepared = prepared_for_training()
    x, _ = batch()
    qtool.calibrate(prepared.train(), [x, x * 2])
    assert prepared.training
    assert prepared.uncalibrated() == ()
    assert prepared.stage is Stage.PREPARED
    before = prepared.eval()(x)
    assert not torch.equal(before, small_net().eval()(x))  # on the grid already
    assert torch.equal(qtool.convert(prepared)(x), before)


def poisoned():
    x = batch()[0]
    x[0, 0, 0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    return x


def test_case_20_a_bad_batch_in_training_names_the_node_the_count_and_the_pass():
    prepared = trained(steps=1)
    before = {name: float(point.observer.high) for name, point in prepared.activations.items()}
    with pytest.raises(NonFiniteError, match=r"^training pass 2: at node 'x': 1 NaN and 2 infinite of 1152") as caught:
        prepared(poisoned())
    assert isinstance(caught.value, RuntimeError)
    assert before == {name: float(point.observer.high) for name, point in prepared.activations.items()}
    assert torch.isfinite(step(prepared, data=batch(2)))


def test_case_20_ignored_it_shows_in_the_loss_and_leaves_every_scale_finite():
    config = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat", "activations": {"non_finite": "ignore"}}}
    prepared = qtool.prepare(small_net(), batch()[0], config).train()
    for number in range(2):
        step(prepared, data=batch(number))
    assert prepared(poisoned()).isnan().any()
    with torch.no_grad():
        prepared(batch()[0])
    scales = [point.fake_quantize.scale for point in (*prepared.activations.values(), *prepared.weights.values())]
    assert all(bool(scale.isfinite().all()) for scale in scales)
    assert float(prepared.activations["x"].observer.high) < 10


@pytest.mark.parametrize("is_folded", [True, False])
def test_a_batch_norm_over_one_value_per_channel_is_an_error_that_names_it(is_folded):
    """Torch's own refuses it too: the normalised value would be beta, whatever comes in."""
    before = nn.Linear(3, 4) if is_folded else nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    model = nn.Sequential(before, nn.BatchNorm1d(4), nn.Linear(4, 2))
    prepared = prepared_for_training(model, example=torch.randn(4, 3))
    one = torch.randn(1, 3)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        model.train()(one)
    prepared.train()
    with pytest.raises(SmallBatchError, match=r"^batch norm '1' sees one value per channel, .*\(1, 4\)") as raised:
        prepared(one)
    assert isinstance(raised.value, ValueError)
    assert "at least 2 samples, or call freeze_batch_norms()" in str(raised.value)
    assert prepared(torch.randn(2, 3)).isfinite().all()
    prepared.freeze_batch_norms()
    assert prepared(one).isfinite().all()
    assert prepared.eval()(one).isfinite().all()


def test_a_bias_that_outgrows_its_frozen_scale_still_fits_an_int32():
    torch.manual_seed(0)
    model, x = nn.Linear(8, 4), torch.randn(16, 8)
    model.weight.data[0], model.bias.data[0] = 0.0, 0.1
    prepared = prepared_for_training(model, backend="qnnpack", example=x)
    qtool.calibrate(prepared, [x * 3])
    prepared.train().freeze_observers()
    prepared.body.bias.data[0] = 50.0
    converted = qtool.convert(prepared.eval())
    assert torch.equal(converted(x), prepared(x))
    assert max(verify(prepared, converted, (x,)).values()) <= 1


def test_ranges_that_are_not_known_cannot_be_frozen_and_reset_forgets_the_training():
    prepared = prepared_for_training()
    with pytest.raises(UncalibratedError, match="the ranges of 7 of 7 edges are not known yet, first 'x'"):
        prepared.freeze_observers()
    prepared = trained()
    prepared.reset()
    assert prepared.stage is Stage.PREPARED
    assert prepared.uncalibrated() == tuple(prepared.activations)
    qtool.calibrate(prepared, [batch()[0]])
    assert qtool.convert(prepared, "qnnpack").stamp.backends == ("qnnpack",)


def test_gradients_in_eval_mode_are_those_of_the_rounded_weights():
    """As an attack or a sensitivity analysis takes them; through the weight straight through, as in train mode."""
    prepared = trained().eval()
    x = batch()[0].requires_grad_()
    cross_entropy(prepared(x), batch()[1]).backward()
    assert float(x.grad.abs().sum()) > 0
    weight = dict(prepared.named_parameters())["body.depthwise.0.weight"]
    assert float(weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_case_40_calls_in_inference_mode_leave_a_model_that_trains(granularity):
    prepared, x = prepared_for_training(granularity=granularity), batch()[0]
    with torch.inference_mode():
        prepared.train()(x)
        prepared(x)
        qtool.calibrate(prepared, [x, x * 2])
        prepared.eval()(x)
    assert [name for name, tensor in prepared.named_buffers() if tensor.is_inference()] == []
    assert [name for name, tensor in prepared.named_parameters() if tensor.is_inference()] == []
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for number in range(2):
        assert torch.isfinite(step(prepared.train(), optimizer, data=batch(number)))
    assert all(torch.isfinite(parameter.grad).all() for parameter in prepared.parameters())


def test_case_42_everything_that_was_inserted_moves_with_the_model():
    prepared = trained(steps=2)
    prepared.learn_scales()
    moved = prepared.to("meta")
    tensors = dict([*moved.named_parameters(), *moved.named_buffers()])
    assert {tensor.device.type for tensor in tensors.values()} == {"meta"}
    points = ("scale", "zero_point", "shift", "start", "low", "high", "num_batches", "input_scale")
    assert all(any(name.endswith(f".{part}") for name in tensors) for part in points)


def test_preparing_in_inference_mode_leaves_a_model_that_trains():
    net = small_net()
    with torch.inference_mode():
        prepared = prepared_for_training(net)
    assert torch.isfinite(step(prepared.train(), torch.optim.SGD(prepared.parameters(), lr=0.1)))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_torch_func_grad_works_once_buffers_stay_and_names_what_lets_them(granularity):
    prepared, (x, labels) = trained(granularity=granularity).train(), batch()
    parameters = dict(prepared.named_parameters())

    def loss(given):
        torch.manual_seed(3)  # of the dropout
        return cross_entropy(torch.func.functional_call(prepared, given, (x,)), labels)

    with pytest.raises(UsageError, match=r"call freeze_observers\(\) and freeze_batch_norms\(\) before"):
        torch.func.grad(loss)(parameters)
    prepared.freeze_observers()
    prepared.freeze_batch_norms()
    found = torch.func.grad(loss)(parameters)
    step(prepared)
    assert all(torch.equal(found[name], parameter.grad) for name, parameter in parameters.items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # dynamo looks at it
def test_compiled_it_trains_the_same():
    here, there = trained().train(), trained().train()
    losses = step(here), step(torch.compile(there, backend="aot_eager"))
    assert torch.equal(*losses)
    assert_same({n: p.grad for n, p in here.named_parameters()}, {n: p.grad for n, p in there.named_parameters()})
