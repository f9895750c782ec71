"""bench: float beside each mode, from a prepared model and from a config; what cannot be measured is refused."""

import copy

import pytest
import torch
from torch import nn

import qtool
from qtool.config.load import config_from_mapping
from qtool.errors import DataError, ModelError, UsageError
from qtool.types import Memory
from qtool.workflows.bench import BenchSettings, bench, bench_from_config, stand_in_loss, training_steps

QAT = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
QUICK = BenchSettings(batch_size=4, rounds=1, modes=(Memory.STANDARD, Memory.RECOMPUTE))
CONFIG = {
    **QAT,
    "model": {
        "factory": "tests.workflows.training_parts:classifier",
        "random_init": True,
        "inputs": [{"name": "x", "shape": ["batch", 1, 6, 6]}],
    },
}
TRAIN = {"kind": "python", "factory": "tests.workflows.training_parts:Pictures", "kwargs": {"count": 6}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))

    def forward(self, x):
        return self.layers(x)


def prepared(config=QAT, **options):
    torch.manual_seed(0)
    return qtool.prepare(Net(), torch.zeros(2, 3, 8, 8), config, **options)


def test_float_comes_first_and_each_mode_in_the_order_asked():
    told = []
    measured = bench(prepared(), QUICK, on_step=lambda *counts: told.append(counts))
    assert [cost.name for cost in measured.costs] == ["float", "standard", "recompute"]
    assert measured.shapes == ((4, 3, 8, 8),)
    assert measured.costs[0].saved_ratio == 1
    assert all(cost.saved_bytes > 0 and cost.peak_bytes >= 0 and cost.seconds > 0 for cost in measured.costs)
    assert measured.num_threads == torch.get_num_threads()
    assert told[-1][0] == told[-1][1] == len(told)


def test_saved_bytes_of_float_are_those_of_the_model_itself():
    conv_and_norm = 2 * 4 * 8 * 6 * 6 * 4  # the convolution's output for batch norm, relu's for itself and linear
    statistics_and_loss = 2 * 8 * 4 + 4 * 5 * 4 + 2 * 4  # mean and deviation; log softmax; total weight and loss
    float_cost = bench(prepared(), QUICK).costs[0]
    assert conv_and_norm + statistics_and_loss == pytest.approx(float_cost.saved_bytes, rel=0.02)


def test_the_prepared_model_is_left_as_it_is():
    model = prepared()
    qtool.calibrate(model, [torch.randn(8, 3, 8, 8)])
    before = copy.deepcopy(model.state_dict())
    bench(model, QUICK)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not model.training


def test_channels_last_is_for_float_too():
    seen = []

    class Seen(Net):
        def forward(self, x):
            seen.append(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous())
            return super().forward(x)

    steps = training_steps(
        Seen(), prepared(), (torch.randn(4, 3, 8, 8),), stand_in_loss(), BenchSettings(channels_last=True)
    )
    for step in steps:
        step()
    assert seen == [True]
    assert steps[0].model.layers[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(step.inputs[0].is_contiguous(memory_format=torch.channels_last) for step in steps)


def test_a_config_is_measured_on_its_data_with_its_loss():
    config = config_from_mapping({**CONFIG, "data": {"train": TRAIN}, "train": {"epochs": 1}})
    measured = bench_from_config(config, QUICK)
    assert measured.data == "data.train (python)"
    assert measured.shapes == ((4, 1, 6, 6),)


def test_a_config_for_calibration_is_measured_as_if_trained_on_random_inputs():
    config = config_from_mapping({**CONFIG, "quantize": {"mode": "ptq"}})
    assert bench_from_config(config, QUICK).data == "random inputs"


def test_data_smaller_than_a_batch():
    config = config_from_mapping({**CONFIG, "data": {"train": TRAIN}, "train": {"epochs": 1}})
    with pytest.raises(DataError, match=r"6 samples and a batch of 7 is asked for: give --batch-size"):
        bench_from_config(config, BenchSettings(batch_size=7, rounds=1))


def test_a_model_prepared_without_training():
    model = prepared({"target": {"backend": "fbgemm"}})
    with pytest.raises(UsageError, match=r"prepared with quantize.mode 'ptq'"):
        bench(model, QUICK)


def test_a_fixed_batch_of_another_size():
    model = prepared(dynamic_batch=False)
    with pytest.raises(UsageError, match="give --batch-size 2, or prepare the model with a dynamic batch"):
        bench(model, QUICK)


def test_loss_without_classes_is_the_mean_square_of_all_outputs():
    loss = stand_in_loss()
    outputs = {"a": torch.full((2, 1), 3.0, requires_grad=True), "b": [torch.full((4, 4, 4), 2.0, requires_grad=True)]}
    assert loss(outputs).item() == 9 + 4
    with pytest.raises(ModelError, match="no tensor of floats with a gradient"):
        loss(torch.ones(3, dtype=torch.int64))


def test_loss_of_classes_has_the_same_labels_in_every_step():
    loss, scores = stand_in_loss(), torch.randn(6, 5, requires_grad=True)
    assert loss(scores).item() == loss(scores).item()
    assert 0 < loss(scores).item() < 10
