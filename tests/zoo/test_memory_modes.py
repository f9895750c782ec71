"""Fifty steps on Fashion-MNIST (`make data`): the same numbers in every mode, and those of the textbook in float64."""

from pathlib import Path

import pytest
import torch

from examples.fashion_nets import DepthwiseNet, SmallNet
from qtool.config.schema import FashionMnistSource
from qtool.data.fashion_mnist import open_fashion_mnist
from tests.runtime.test_memory_modes import STEPS, check_against_textbook, check_modes

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / ".data" / "usr" / "share" / "datasets" / "fashion-mnist"
NETS = [SmallNet, DepthwiseNet]


def batches():
    source = FashionMnistSource(kind="fashion_mnist", folder=str(FOLDER), split="train")
    pictures = open_fashion_mnist(source, FOLDER)
    for number in range(STEPS):
        samples = [pictures[index] for index in range(64 * number, 64 * (number + 1))]
        yield torch.stack([sample.inputs[0] for sample in samples]), torch.tensor([sample.label for sample in samples])


@pytest.mark.parametrize("granularity", ["channel", "tensor"])
@pytest.mark.parametrize("net", NETS)
def test_fifty_steps_are_the_same_in_every_mode(net, granularity):
    check_modes(granularity=granularity, net=net, data=batches)


@pytest.mark.parametrize("net", NETS)
def test_fifty_steps_in_float64_are_those_of_the_folded_textbook(monkeypatch, net):
    check_against_textbook(monkeypatch, net=net, data=batches)
