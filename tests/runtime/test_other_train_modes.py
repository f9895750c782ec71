"""Models whose train mode is another program than their eval mode."""

import copy

import pytest
import torch
import torchvision
from torch import nn

import qtool
from qtool.passes.points import Mode
from qtool.types import Verdict
from tests.patterns import Lambda
from tests.runtime.training_steps import (
    GRANULARITIES,
    prepared_for_training,
    shown,
)

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
    before = int(prepared.activations["input"].observer.num_batches)
    shown(prepared, x)
    assert int(prepared.activations["input"].observer.num_batches) == before + 1


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
