"""The nets of the examples, on pictures as small as the digits': all int8, and exact where they run."""

import pytest
import torch

import qtool
from examples.fashion_nets import DepthwiseNet, SmallNet
from qtool.config.schema import DigitsSource
from qtool.data.digits import open_digits
from qtool.workflows.convert import convert
from qtool.workflows.verify import verify

NETS = (SmallNet, DepthwiseNet)


@pytest.fixture(scope="module")
def digits():
    samples = open_digits(DigitsSource(kind="digits", split="train"))
    return torch.stack([samples[index].inputs[0] for index in range(20)])


@pytest.mark.parametrize("backend", ["fbgemm", "x86", "onednn", "qnnpack"])
@pytest.mark.parametrize("net", NETS)
def test_every_node_is_int8_and_within_one_step(net, backend, digits):
    torch.manual_seed(0)
    prepared = qtool.prepare(net(), digits[:2], {"target": {"backend": backend}})
    assert len(prepared.plan.int8_nodes()) == len(prepared.plan.nodes)
    qtool.calibrate(prepared, digits.split(10))
    assert max(verify(prepared, convert(prepared)).values()) <= 1


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("side", [8, 28])
def test_a_net_takes_digits_and_clothes(net, side):
    assert net().eval()(torch.zeros(3, 1, side, side)).shape == (3, 10)


def test_the_depthwise_net_has_as_many_depthwise_convolutions_as_pointwise_ones():
    convolutions = [module for module in DepthwiseNet().modules() if isinstance(module, torch.nn.Conv2d)]
    depthwise = [conv for conv in convolutions if conv.groups == conv.in_channels == conv.out_channels > 1]
    pointwise = [conv for conv in convolutions if conv.kernel_size == (1, 1)]
    assert len(depthwise) == len(pointwise) == len(convolutions) // 2
