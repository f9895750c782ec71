"""The layers read from a program are the stamped ones, number for number, and the tensors those that torch loads."""

import io
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import qtool
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, Role, Tensor
from qtool.runtime.store import to_bytes
from qtool.stamp.digest import parameter_digest
from qtool.types import Op
from tests.patterns import PATTERNS, make_pattern

SAMPLE = ("conv2d_bn_relu6", "linear", "conv_transpose2d", "add_relu", "cat", "tied_linears", "called_twice")


def converted(name, backend="fbgemm"):
    model, x = make_pattern(name)
    prepared = qtool.prepare(model, x, {"target": {"backend": backend}})
    qtool.calibrate(prepared, [x])
    return qtool.convert(prepared)


def array(model, tensor):
    data = b"".join(model.blocks(tensor.place))
    values = np.frombuffer(data, {"float32": "<f4", "bfloat16": "<u2"}.get(tensor.dtype, tensor.dtype))
    if tensor.strides is None:
        return values.reshape(tensor.shape)
    steps = [stride * values.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values, tensor.shape, steps)


def digest(model, quantization):
    found = (quantization.scale, quantization.zero_point)
    scale, zero = (array(model, each) if isinstance(each, Tensor) else np.array(each) for each in found)
    return parameter_digest(scale.astype(np.float32), zero.astype(np.int32))


def assert_joined(data):
    with opened_model(data) as model:
        # A result of several values is stored without the ops that take one of them.
        nodes = [node for node in model.facts.stamp.int8_nodes() if "getitem" not in node.target]
        stamped = {node.name: node for node in nodes}
        found = {node.name: node for node in model.facts.model.nodes if node.name in stamped}
        assert found.keys() == stamped.keys()
        for name, node in stamped.items():
            assert found[name].compute is Compute.STATIC, name
            pairs = zip(node.inputs, [o for o in found[name].operands if o.role is Role.INPUT], strict=True)
            pairs = [
                *pairs,
                (node.weight, found[name].operand(Role.WEIGHT)),
                (node.output, found[name].operand(Role.OUTPUT)),
            ]
            for tensor, operand in pairs:
                assert (tensor is None) == (operand is None)
                if tensor is not None:
                    q = operand.quantization
                    assert (q.dtype, q.qmin, q.qmax, q.axis) == (tensor.dtype, tensor.qmin, tensor.qmax, tensor.axis)
                    assert digest(model, q) == tensor.digest, (name, operand)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_converted_file_has_every_stamped_node_with_its_scales(name):
    assert_joined(to_bytes(converted(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, pattern in PATTERNS.items() if pattern.has_batch])
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_every_pattern_has(name, backend):
    assert_joined(to_bytes(converted(name, backend)))


def test_an_exported_program_has_them_in_plain_arithmetic(tmp_path):
    qtool.export(converted("conv2d_bn_relu6"), tmp_path / "a.pt2", format="pt2")
    with opened_model(tmp_path / "a.pt2") as model:
        (node,) = [node for node in model.facts.model.nodes if node.op is Op.CONV2D]
        stamped = next(each for each in model.facts.stamp.nodes if each.name == node.name)
        weight, read = node.operand(Role.WEIGHT), node.operand(Role.INPUT)
        assert node.compute is Compute.STATIC
        assert digest(model, weight.quantization) == stamped.weight.digest
        assert (read.quantization.qmin, read.quantization.qmax) == (stamped.inputs[0].qmin, stamped.inputs[0].qmax)
        assert digest(model, read.quantization) == stamped.inputs[0].digest


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4, dtype=torch.bfloat16)
        self.register_buffer("turned", torch.randn(4, 6).t())

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.head(x.bfloat16()) @ self.turned.bfloat16().t()


def saved(model, *inputs):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(model.eval(), inputs), file)
    return file.getvalue()


def test_a_float_program_has_its_tensors_bit_for_bit_and_its_float_layers():
    net = Net()
    with opened_model(saved(net, torch.randn(2, 3, 8, 8))) as model:
        facts = model.facts.model
        for name, expected in net.state_dict().items():
            (tensor,) = [each for each in facts.tensors if each.name == name]
            assert tensor.shape == tuple(expected.shape)
            bits = expected.view(torch.int16) if expected.dtype is torch.bfloat16 else expected
            assert np.array_equal(array(model, tensor).view(bits.numpy().dtype), bits.numpy())
        nodes = {node.name: node for node in facts.nodes}
        assert {node.compute for node in facts.nodes} == {Compute.FLOAT}
        assert (nodes["conv"].op, nodes["norm"].target) == (Op.CONV2D, "aten.batch_norm")
        assert nodes["norm"].reads == ("conv",)
        assert facts.producer.startswith("torch.export 2.")


def test_fake_quantized_weights_and_inputs():
    class Fake(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 8))

        def forward(self, x):
            w = torch.fake_quantize_per_tensor_affine(self.weight, 0.1, 0, -127, 127)
            return nn.functional.linear(torch.fake_quantize_per_tensor_affine(x, 0.2, 3, 0, 127), w)

    with opened_model(saved(Fake(), torch.randn(2, 8))) as model:
        (node,) = model.facts.model.nodes
        assert node.compute is Compute.FAKE_QUANTIZED
        assert node.operand(Role.INPUT).quantization.scale == (0.2,)
        assert node.operand(Role.WEIGHT).quantization.qmin == -127
        assert model.facts.model.form == "training program (fake-quantized)"
