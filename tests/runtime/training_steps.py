"""The model, the batches and the steps that the tests of training share."""

import io

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import qtool

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


def saved(model):
    buffer = io.BytesIO()
    qtool.save(model, buffer)
    return buffer.getvalue()
