"""The loop of the examples trains a float net and a prepared one alike."""

import copy

import pytest
import torch

import qtool
from examples import own_loop
from examples.own_loop import accuracy, calibrated, fit, train_quantized
from qtool.types import Stage

CONFIG = {"target": {"backend": "fbgemm"}}


@pytest.fixture(scope="module")
def digits():
    return tuple(part[:512] for part in own_loop.digits("train"))


@pytest.fixture(scope="module")
def net(digits):
    torch.manual_seed(0)
    net = own_loop.small_net()
    fit(net, *digits, epochs=3, rate=0.1)
    return net


def loss(model, digits):
    images, labels = digits
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(images), labels).item()


def test_fitting_lowers_the_loss_and_can_be_repeated(net, digits):
    one, other = copy.deepcopy(net), copy.deepcopy(net)
    for model in (one, other):
        fit(model, *digits, epochs=1, rate=0.05)
    assert loss(one, digits) < loss(net, digits)
    assert not one.training
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_accuracy_counts_what_is_right_over_all_batches():
    scores = torch.eye(10).repeat(60, 1)  # 600 samples in batches of 500; the class is the place of the 1
    labels = scores.argmax(1)
    labels[:150] = (labels[:150] + 1) % 10
    assert accuracy(torch.nn.Identity(), scores, labels) == 75.0


def test_training_goes_on_as_int8_and_the_file_computes_what_was_trained(net, digits, tmp_path):
    images, labels = digits
    before = {name: value.clone() for name, value in net.state_dict().items()}
    start = calibrated(net, images, {**CONFIG, "quantize": {"mode": "qat"}})
    trained = train_quantized(net, images, labels, CONFIG)
    assert trained.stamp.stage is Stage.TRAINED
    assert loss(trained, digits) < loss(start, digits)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    qtool.save(qtool.convert(trained), tmp_path / "int8.pt2")
    with torch.no_grad():
        int8, fake = qtool.load(tmp_path / "int8.pt2")(images), trained(images)
    scale = trained.activations[trained.plan.nodes[-1].output].fake_quantize.scale.item()
    assert (int8 - fake).abs().max().item() <= 1.001 * scale
