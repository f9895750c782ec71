"""A prepared model that is trained: what it computes, what it changes, and what travels from step to step."""

import copy
import io
import pickle

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import qtool
from qtool.errors import CaptureError, NonFiniteError, SmallBatchError, UncalibratedError, UsageError
from qtool.passes.points import Mode
from qtool.runtime.store import from_bytes, to_bytes
from qtool.types import Stage, Verdict
from qtool.workflows.verify import verify
from tests.patterns import Lambda

GRANULARITIES = ["channel", "tensor"]


class Net(nn.Module):
    """A depthwise stage, a residual add, a pool, a dropout before the pooled values are flattened."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.03),
            nn.ReLU6(inplace=True),
        )
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        x = self.stem(x)
        x = torch.max_pool2d(self.depthwise(x) + x, 2)
        return self.head(torch.flatten(self.drop(x), 1))


def small_net(seed=0):
    torch.manual_seed(seed)
    net = Net()
    for norm in (net.stem[1], net.depthwise[1]):
        norm.weight.data[:3] = torch.tensor([0.0, 1e-12, -0.7])
        norm.bias.data.normal_().abs_()  # or the ReLU would block it
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    return net


def batch(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 3, 8, 8, generator=generator), torch.randint(0, 5, (6,), generator=generator)


def prepared_for_training(model=None, granularity="channel", backend="fbgemm", example=None):
    config = {"target": {"backend": backend}, "quantize": {"mode": "qat", "weights": {"granularity": granularity}}}
    return qtool.prepare(small_net() if model is None else model, batch()[0] if example is None else example, config)


def step(model, optimizer=None, seed=3, data=None):
    """One training step; returns the loss."""
    x, labels = data or batch()
    torch.manual_seed(seed)
    model.zero_grad()
    loss = cross_entropy(model(x), labels)
    loss.backward()
    if optimizer is not None:
        optimizer.step()
    return loss.detach()


def trained(steps=4, **kwargs):
    prepared = prepared_for_training(**kwargs).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.02, momentum=0.9)
    for number in range(steps):
        step(prepared, optimizer, data=batch(number))
    return prepared


@torch.no_grad()
def shown(prepared, *batches):
    """Show a model batches in train mode without training it: ranges and running statistics follow."""
    for x in batches:
        prepared.train()(x)
    return prepared


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


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


def test_case_14_scales_and_codes_are_those_of_the_last_training_step():
    prepared = trained()
    seen = {}

    def remember(point, name):
        return lambda *_: seen.update({name: point.fake_quantize.scale.clone()})

    for name, point in prepared.activations.items():
        point.register_forward_hook(remember(point, name))
    step(prepared)
    found = qtool.convert(prepared.eval()).stamp
    stamped = {t.edge: t.scale_min for node in found.int8_nodes() for t in (*node.inputs, node.output) if t}
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


def test_nan_in_training_names_the_edge():
    prepared = trained(steps=1)
    with pytest.raises(NonFiniteError, match="'x': 1152 NaN"):
        prepared(torch.full((6, 3, 8, 8), torch.nan))


# --- what travels


def saved(model):
    buffer = io.BytesIO()
    qtool.save(model, buffer)
    return buffer.getvalue()


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
    fresh = prepared_for_training()
    fresh.load_state_dict(model.state_dict())
    return fresh.train(model.training)


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


def test_case_51_gradients_reach_what_a_weight_is_computed_from():
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
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


# --- the caller's own ways


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


# --- models whose train mode is another program


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_batch_norm_with_a_cumulative_average_is_captured(granularity):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None))
    eager = copy.deepcopy(model).train()
    prepared = prepared_for_training(model, granularity, example=torch.randn(4, 3, 6, 6)).train()
    prepared.set_mode(Mode.FLOAT)
    for number in range(3):
        x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(number))
        torch.testing.assert_close(prepared(x), eager(x), atol=1e-5, rtol=1e-5)
    for name, buffer in eager[1].named_buffers():
        torch.testing.assert_close(dict(prepared.named_buffers())[f"body.1.{name}"], buffer, atol=1e-6, rtol=1e-5)
    x = torch.randn(4, 3, 6, 6)
    torch.testing.assert_close(prepared.eval()(x), eager.eval()(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("factory", "only", "size"),
    [
        (lambda: torchvision.models.efficientnet_b0(num_classes=4), "bernoulli", 32),
        (lambda: torchvision.models.googlenet(num_classes=4, init_weights=False), "aux1", 96),
    ],
)
def test_other_train_modes(factory, only, size):
    """Stochastic depth and auxiliary heads: train mode computes what the eager model does, eval mode what it does."""
    torch.manual_seed(0)
    model = factory()
    x = torch.randn(2, 3, size, size)
    prepared = prepared_for_training(model, example=x)
    prepared.set_mode(Mode.FLOAT)
    torch.testing.assert_close(prepared.eval()(x), model.eval()(x), atol=1e-4, rtol=1e-4)
    torch.manual_seed(1)
    expected = model.train()(x)
    torch.manual_seed(1)
    found = prepared.train()(x)
    for one, other in zip(outputs(found), outputs(expected), strict=True):
        assert torch.equal(one, other)
    assert any(only in name for name in prepared.plan.training_only)
    torch.testing.assert_close(prepared.eval()(x), model.eval()(x), atol=1e-4, rtol=1e-4)


def outputs(result):
    return list(result) if isinstance(result, tuple) else [result]


def test_bytes_do_not_change_with_the_order_of_modes():
    prepared = trained()
    assert to_bytes(prepared) == to_bytes(prepared.eval())


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


# --- train mode does more, or other things


class NoiseFirst(nn.Module):
    """In train mode another mul and another add come first, in the same module."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.d = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        if self.training:
            x = x + torch.randn_like(x) * 0.1
        return self.d(self.a(x) * 30 + self.b(x))


class SecondPass(nn.Module):
    """In train mode the layers are called on something else first."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        other = self.b(torch.relu(self.a(x * 50))) if self.training else 0.0
        return self.b(torch.relu(self.a(x))) + 0.0 * other


class OtherWeight(nn.Module):
    """In train mode the same op runs with another weight first."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = (nn.Parameter(torch.randn(4, 3, 3, 3) * scale) for scale in (100.0, 0.1))

    def forward(self, x):
        extra = nn.functional.conv2d(x, self.w1).mean() * 0.0 if self.training else 0.0
        return nn.functional.conv2d(x, self.w2) + extra


@pytest.mark.parametrize("kind", [NoiseFirst, SecondPass, OtherWeight])
def test_what_only_train_mode_does_is_not_taken_for_what_is_deployed(kind):
    """The ranges learned are those of the deployed ops: as close to the float model as ranges from calibration."""
    torch.manual_seed(0)
    model, x = kind(), torch.randn(4, 3, 8, 8)
    by_training = shown(prepared_for_training(model, example=x), x, x, x).eval()
    by_calibration = prepared_for_training(model, example=x)
    qtool.calibrate(by_calibration, [x])
    expected = model.eval()(x)
    errors = [float((p(x) - expected).abs().max().detach()) for p in (by_training, by_calibration)]
    assert errors[0] <= 2 * errors[1] + 1e-6
    assert by_training.plan.training_only


def test_an_op_that_only_eval_mode_has_stays_float():
    class EvalOnly(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) if self.training else self.b(self.a(x))

    prepared = prepared_for_training(EvalOnly(), example=torch.randn(4, 4))
    reasons = {node.name: (node.verdict, node.reason) for node in prepared.plan.nodes}
    assert reasons["a"][0] is Verdict.INT8
    assert reasons["b"] == (Verdict.FLOAT, "train mode has no such op, so training could not learn its range")


def test_dropout_on_an_input_is_looked_through():
    torch.manual_seed(0)
    prepared = prepared_for_training(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4)), example=torch.randn(8, 4))
    x = torch.randn(8, 4)
    shown(prepared, x, x)
    assert float(prepared.activations["input"].observer.high) == float(x.max())  # not what dropout makes of it
    seen = []
    prepared.activations["input"].register_forward_hook(lambda *_: seen.append(1))
    shown(prepared, x)
    assert seen == [1]


def test_no_gradient_flows_where_the_model_says_so():
    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                aim = self.teacher(x)
            return self.student(x) - aim

    x = torch.randn(4, 4)
    prepared = prepared_for_training(Teacher(), example=x).train()
    prepared(x).square().sum().backward()
    assert {n: p.grad is not None for n, p in prepared.named_parameters()} == {
        "body.teacher.weight": False,
        "body.teacher.bias": False,
        "body.student.weight": True,
        "body.student.bias": True,
    }
    assert {node.verdict for node in prepared.plan.nodes if node.name in ("teacher", "student")} == {Verdict.INT8}


@pytest.mark.parametrize("norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_spectral_norm_trains(norm):
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    prepared = prepared_for_training(nn.Sequential(norm(nn.Linear(4, 4))), example=x).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        prepared(x).square().sum().backward()
        optimizer.step()
    assert torch.equal(qtool.convert(prepared.eval())(x), prepared(x))


def test_case_17_a_batch_norm_called_twice_counts_each_call_once():
    torch.manual_seed(0)
    model = Lambda(
        lambda m, x: m.b(m.c(m.b(m.c(x) * 3))), c=nn.Conv2d(3, 3, 3, padding=1), b=nn.BatchNorm2d(3, momentum=None)
    )
    x = torch.randn(4, 3, 8, 8)
    eager, prepared = copy.deepcopy(model).train(), prepared_for_training(model, example=x).train()
    prepared.set_mode(Mode.FLOAT)
    for _ in range(2):
        torch.testing.assert_close(prepared(x), eager(x), atol=1e-5, rtol=1e-5)
    buffers = dict(prepared.named_buffers())
    for name, buffer in eager.b.named_buffers():
        torch.testing.assert_close(buffers[f"body.b.{name}"], buffer, atol=1e-5, rtol=1e-5)
    prepared.freeze_batch_norms()
    prepared(x)
    assert int(buffers["body.b.num_batches_tracked"]) == 4


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


def test_preparing_in_inference_mode_leaves_a_model_that_trains():
    net = small_net()
    with torch.inference_mode():
        prepared = prepared_for_training(net)
    assert torch.isfinite(step(prepared.train(), torch.optim.SGD(prepared.parameters(), lr=0.1)))
