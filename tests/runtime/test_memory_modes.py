"""What training keeps changes no number: fifty steps in each mode, and beside the textbook in float64."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import qtool
from qtool.errors import UsageError
from qtool.numerics.coded import Coded
from qtool.numerics.layer import LayerResult
from qtool.passes import training_layer
from qtool.types import Memory
from tests.numerics.layer_case import statistics, straight_through
from tests.runtime.training_steps import assert_same, saved, state

STEPS = 50


class Net(nn.Module):
    """A stem, a depthwise and a pointwise convolution, a residual sum with relu, a max pool, a linear layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.pointwise = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.pointwise(self.depthwise(x)) + x)
        return self.head(torch.flatten(torch.max_pool2d(x, 2), 1))


def batches():
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    for number in range(STEPS):
        chosen = slice(32 * number, 32 * (number + 1))
        yield x[chosen], torch.tensor(labels[chosen])


def trained(
    memory, granularity="channel", memory_format=torch.contiguous_format, dtype=torch.float32, net=Net, data=batches
):
    """Return losses, gradients of the last step and the model after fifty steps."""
    torch.manual_seed(0)
    config = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat", "weights": {"granularity": granularity}}}
    example, _ = next(data())
    prepared = qtool.prepare(net(), example, config).to(memory_format=memory_format).to(dtype).train()
    prepared.set_memory(memory)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, labels in data():
        optimizer.zero_grad()
        loss = cross_entropy(prepared(x.to(dtype).contiguous(memory_format=memory_format)), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: parameter.grad for name, parameter in prepared.named_parameters()}, prepared


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("granularity", ["channel", "tensor"])
def test_fifty_steps_are_the_same_in_every_mode(granularity, memory_format):
    check_modes(granularity=granularity, memory_format=memory_format)


def check_modes(**settings):
    losses, gradients, prepared = trained(Memory.STANDARD, **settings)
    assert min(losses[-5:]) < losses[1] / 2
    for memory in (Memory.COMPRESSED, Memory.MIXED, Memory.RECOMPUTE):
        other = trained(memory, **settings)
        assert other[0] == losses
        assert_same(other[1], gradients)
        assert_same(state(other[2]), state(prepared))


def textbook_layer(layer, x, tensors, grid):
    """A layer by torch's own functions and autograd, with its batch norm folded into weight and bias."""
    weight = tensors.weight
    if tensors.weight_grid is not None:
        weight = straight_through(weight, tensors.weight_grid)
    mean = variance = None
    bias = tensors.bias
    if layer.eps is not None:
        mean, variance = tensors.running or statistics(layer.product.forward(x.values, weight, bias))
        factor = tensors.gamma / torch.sqrt(variance + layer.eps)
        bias = (-mean if bias is None else bias - mean) * factor + tensors.beta
        weight = weight * factor.view(-1, *[1] * (weight.dim() - 1))
        mean, variance = mean.detach(), variance.detach()
    y = layer.product.forward(x.values, weight, bias).clamp(*layer.bounds)
    low, high = (end.float() for end in y.detach().aminmax())
    return LayerResult(Coded(y if grid is None else straight_through(y, grid)), mean, variance, low, high)


def test_fifty_steps_in_float64_are_those_of_the_folded_textbook(monkeypatch):
    check_against_textbook(monkeypatch)


def check_against_textbook(monkeypatch, **settings):
    losses, _, _ = trained(Memory.COMPRESSED, dtype=torch.float64, **settings)
    monkeypatch.setattr(training_layer, "run_layer", textbook_layer)
    expected, _, _ = trained(Memory.COMPRESSED, dtype=torch.float64, **settings)
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 1e-6


def test_the_mode_is_kept_by_copies_and_changes_no_file():
    _, _, prepared = trained(Memory.COMPRESSED)
    before = saved(prepared)
    prepared.set_memory("recompute")
    assert saved(prepared) == before
    assert prepared.memory is Memory.RECOMPUTE


def test_an_unknown_mode_is_refused():
    _, _, prepared = trained(Memory.COMPRESSED)
    with pytest.raises(UsageError, match=r"'compresed' is not a mode: .* did you mean 'compressed'\?"):
        prepared.set_memory("compresed")
