"""What reads a tensor on a grid keeps its codes for backward, and gives the gradients of what keeps its values."""

import pytest
import torch
from torch import nn

import qtool
from qtool.passes.training_layer import TrainingLayer
from tests.patterns import Lambda

READERS = {
    "a convolution": nn.Conv2d(8, 4, 3),
    "a float convolution": nn.Conv2d(8, 4, 3),
    "a linear layer": nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 3)),
    "a product with a gate": Lambda(lambda _, x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    "a sum with relu": Lambda(lambda _, x: torch.relu(x + x.flip(3))),
    "a matrix product": Lambda(lambda _, x: x.flatten(2) @ x.flatten(2).transpose(1, 2)),
    "max pool": nn.MaxPool2d(3, 2, 1),
    "average pool": nn.AvgPool2d(2),
    "silu": nn.SiLU(),
    "cat": Lambda(lambda _, x: torch.cat([x, torch.relu(x)], 1) * 2),
    "pieces": Lambda(lambda _, x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1]),
    "padding": nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(8, 4, 3)),
    "a view": nn.Sequential(Lambda(lambda _, x: x.permute(0, 2, 3, 1)), nn.Linear(8, 3)),
    "upsampling": nn.Sequential(nn.UpsamplingNearest2d(scale_factor=2), nn.Conv2d(8, 4, 3)),
}


def prepared_with(name):
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    config = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
    if name == "a float convolution":
        config["quantize"]["overrides"] = [{"match": "reader", "dtype": "float"}]
    net = nn.Sequential()
    net.add_module("first", first)
    net.add_module("reader", READERS[name])
    prepared = qtool.prepare(net, torch.randn(2, 3, 8, 8), config).train()
    with torch.no_grad():
        prepared(torch.randn(4, 3, 8, 8)), prepared(torch.randn(4, 3, 8, 8))
    assert not prepared.uncalibrated()
    return prepared


def step(prepared, memory):
    """Return the float tensors that are kept, and the gradients."""
    prepared.set_memory(memory)
    kept, owned = [], {tensor.data_ptr() for tensor in (*prepared.parameters(), *prepared.buffers())}
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 3, 8, 8, generator=generator).requires_grad_()

    def pack(tensor):
        if tensor.is_floating_point() and tensor.data_ptr() not in owned:
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = prepared(x)
    grad = torch.randn(out.shape, generator=generator)
    return kept, torch.autograd.grad(out, [x, *prepared.parameters()], grad)


@pytest.mark.parametrize("name", READERS)
def test_no_values_are_kept_of_what_is_coded(name):
    prepared = prepared_with(name)
    prepared.freeze_observers()
    prepared.freeze_batch_norms()
    num_values = 16 * 8 * 6 * 6
    in_floats, expected = step(prepared, "standard")
    assert any(tensor.untyped_storage().nbytes() >= 4 * num_values for tensor in in_floats)
    kept, gradients = step(prepared, "recompute")
    assert [tensor.shape for tensor in kept if tensor.untyped_storage().nbytes() >= 4 * num_values // 2] == []
    assert all(map(torch.equal, gradients, expected))


class Confusing(nn.Module):
    """The quantized convolution bears the name that the graph gives to the float one."""

    def __init__(self):
        super().__init__()
        self.first, self.conv2d_default_1, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)

    def forward(self, x):
        return self.conv2d_default_1(self.last(self.first(x)))


def test_a_float_layer_and_a_quantized_one_may_have_one_name():
    config = {
        "target": {"backend": "fbgemm"},
        "quantize": {"mode": "qat", "overrides": [{"match": "last", "dtype": "float"}]},
    }
    prepared = qtool.prepare(Confusing(), torch.randn(2, 3, 10, 10), config).train()
    graph = prepared._training.module
    layers = [graph.get_submodule(str(n.target)) for n in graph.graph.nodes if n.op == "call_module"]
    weights = [layer.points.weight for layer in layers if isinstance(layer, TrainingLayer)]
    assert weights == [prepared.weights["first"], None, prepared.weights["conv2d_default_1"]]
