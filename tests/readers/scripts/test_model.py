"""Layers read from TorchScript archives are those that torch unpacks, code for code; nothing of the code is run."""

import io

import numpy as np
import pytest
import torch
from torch import nn

import qtool
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, Role, Tensor
from qtool.stamp.digest import parameter_digest
from qtool.types import Op
from tests.patterns import make_pattern
from tests.producers.producer import batch, engine
from tests.producers.torch_files import eager
from tests.readers.programs.test_model import array, digest

LAYERS = ("body.stem", "body.depth", "body.head")


@pytest.fixture(scope="module")
def converted():
    with engine("fbgemm"):
        return eager("fbgemm")


def scripted(model):
    return torch.jit.script(model)


def traced(model):
    return torch.jit.trace(model, batch())


def frozen(model):
    return torch.jit.freeze(torch.jit.script(model))


def saved(module, *, mobile=False):
    if mobile:
        return module._save_to_buffer_for_lite_interpreter()
    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()


def unpacked(model):
    """Return (weight, bias, scale, zero point, groups) of each quantized layer, as torch says them."""
    found = {}
    for name, layer in model.named_modules():
        if name in LAYERS:
            weight, bias = layer._weight_bias()
            found[name] = (weight, bias, layer.scale, layer.zero_point, getattr(layer, "groups", None))
    return found


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("make", [scripted, traced, frozen])
@pytest.mark.parametrize("mobile", [False, True], ids=["archive", "mobile"])
def test_case_63_packed_layers_are_unpacked_as_torch_unpacks_them(converted, make, mobile):
    with engine("fbgemm"):
        data = saved(make(converted), mobile=mobile)
    with opened_model(data) as model:
        facts = model.facts.model
        nodes = [node for node in facts.nodes if node.packed_class]
        assert [node.compute for node in nodes] == [Compute.STATIC] * 3
        if make is not frozen:
            assert tuple(node.name for node in nodes) == LAYERS
        for node, (weight, bias, scale, zero_point, groups) in zip(nodes, unpacked(converted).values(), strict=True):
            read = node.operand(Role.WEIGHT)
            assert read.tensor.shape == tuple(weight.shape)
            assert np.array_equal(array(model, read.tensor), weight.int_repr().numpy())
            assert read.quantization.axis == weight.q_per_channel_axis()
            expected = parameter_digest(
                weight.q_per_channel_scales().float().numpy(), weight.q_per_channel_zero_points().int().numpy()
            )
            scales, zeros = (array(model, each) for each in (read.quantization.scale, read.quantization.zero_point))
            assert parameter_digest(scales.astype(np.float32), zeros.astype(np.int32)) == expected
            assert np.array_equal(array(model, node.operand(Role.BIAS).tensor), bias.detach().numpy())
            written = node.operand(Role.OUTPUT).quantization
            assert (written.scale, written.zero_point) == (pytest.approx((scale,)), (zero_point,))
            assert node.groups == groups
        assert nodes[0].activation == "relu"
        assert nodes[1].reads == (nodes[0].name,)
        assert (facts.risks, facts.not_understood) == ((), ())


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_an_exported_file_has_the_stamped_names_and_ranges(tmp_path):
    net, x = make_pattern("conv2d_chain")
    prepared = qtool.prepare(net, x, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [x])
    qtool.export(qtool.convert(prepared), tmp_path / "a.pt", format="torchscript")
    with opened_model(tmp_path / "a.pt") as model:
        layers = [node for node in model.facts.stamp.nodes if node.op is Op.CONV2D]
        found = {node.name: node for node in model.facts.model.nodes}
        for stamped in layers:
            node = found[stamped.name]
            read, written = node.operand(Role.INPUT).quantization, node.operand(Role.OUTPUT).quantization
            assert (read.qmin, read.qmax) == (stamped.inputs[0].qmin, stamped.inputs[0].qmax)
            assert (written.qmin, written.qmax) == (stamped.output.qmin, stamped.output.qmax)
            assert digest(model, node.operand(Role.WEIGHT).quantization) == stamped.weight.digest


class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(4, 4), nn.Linear(4, 3), 2

    def forward(self, x, flag: bool = False):
        if x.dim() != 2:
            msg = "two dimensions"
            raise ValueError(msg)
        for _ in range(self.scale):
            x = self.first(x) if flag else self.first(x).relu()
        return self.second(x), x


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_branches_and_loops_are_followed_and_float_layers_are_found():
    net = Chooses()
    with opened_model(saved(torch.jit.script(net))) as model:
        nodes = model.facts.model.nodes
        assert {node.compute for node in nodes} == {Compute.FLOAT}
        assert {node.name.partition(" ")[0] for node in nodes} == {"first", "second"}
        weight = next(node for node in nodes if node.name == "second").operand(Role.WEIGHT).tensor
        assert isinstance(weight, Tensor)
        assert np.array_equal(array(model, weight), net.second.weight.detach().numpy())
