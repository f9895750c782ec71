"""Files as torch, torch.ao and torchao write them, small ones; and the facts of them."""

import io
import warnings

import torch
from torch import nn
from torch.ao import quantization as ao
from torch.ao.quantization import quantize_fx

from qtool.readers.any_file import opened_model


class Net(nn.Module):
    """A convolution with batch norm, a depthwise and a transposed one, an add, activations and a linear layer."""

    def __init__(self):
        super().__init__()
        self.quant = ao.QuantStub()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8))
        self.up = nn.ConvTranspose2d(8, 4, 3)
        self.fc = nn.Linear(4, 6)
        self.act = nn.Hardswish()
        self.dequant = ao.DeQuantStub()
        self.add = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        x = self.features(self.quant(x))
        x = self.up(self.add.add(x, x)).mean((2, 3))
        return self.dequant(self.act(self.fc(x)))


class Recurrent(nn.Module):
    """What torch.ao quantizes dynamically, and an embedding and a convolution that it leaves."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5)
        self.cell = nn.LSTMCell(4, 5)
        self.fc = nn.Linear(5, 3)
        self.emb = nn.Embedding(10, 4)
        self.rest = nn.Conv1d(3, 3, 1)


def saved(value, **options):
    """Return the bytes torch.save writes."""
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.save(value, stream, **options)
    return stream.getvalue()


def facts_of(data):
    """Return what a reader says of a file."""
    with opened_model(data) as model:
        return model.facts


def nodes_of(data):
    """Return the layers of a file by name; a name is there once."""
    nodes = facts_of(data).model.nodes
    by_name = {node.name: node for node in nodes}
    assert len(by_name) == len(nodes)
    return by_name


def bytes_of(data):
    """Return (tensor, its bytes) for each tensor of a file, by name."""
    with opened_model(data) as model:
        return {tensor.name: (tensor, b"".join(model.blocks(tensor.place))) for tensor in model.facts.model.tensors}


def eager(*, training=False, observed=False):
    """Return a model in torch.ao's eager mode: statically quantized, in training, or only observed."""
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        fused = [["features.0", "features.1", "features.2"]]
        model = Net().train(training)
        model.qconfig = (ao.get_default_qat_qconfig if training else ao.get_default_qconfig)("fbgemm")
        model = (ao.fuse_modules_qat if training else ao.fuse_modules)(model, fused)
        weight = ao.default_fake_quant if training else ao.default_weight_observer
        model.up.qconfig = None if training else ao.QConfig(activation=ao.default_observer, weight=weight)
        (ao.prepare_qat if training else ao.prepare)(model, inplace=True)
        model(torch.randn(2, 3, 8, 8))
        return model if training or observed else ao.convert(model)


def graph(*, observed=False):
    """Return a model in torch.ao's FX graph mode."""
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        mapping = ao.get_default_qconfig_mapping("fbgemm")
        model = quantize_fx.prepare_fx(Net().eval(), mapping, (torch.randn(1, 3, 8, 8),))
        model(torch.randn(2, 3, 8, 8))
        return model if observed else quantize_fx.convert_fx(model)


def dynamic(dtype=torch.qint8):
    """Return a model that torch.ao quantized dynamically."""
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        return ao.quantize_dynamic(Recurrent().eval(), {nn.LSTM, nn.Linear, nn.LSTMCell}, dtype=dtype)


def mlp():
    """Return a float model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64))


def trained():
    """Return what a training saves: model, optimizer, and numbers."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "args": None}
