import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from qtool.config.train import ConstantSchedule, SgdConfig, StepSchedule, TrainConfig
from qtool.data.batch import Sample
from qtool.errors import DataError, NonFiniteError
from qtool.training.loop import train_epoch
from tests.training.stand_in import Classifier, Points, training_of


def settings_of(**changes):
    return TrainConfig(**{"epochs": 2, "optimizer": SgdConfig(lr=0.05, weight_decay=0.01), **changes})


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def are_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_epoch_is_what_a_plain_loop_does():
    model = Classifier()
    plain = copy.deepcopy(model).train()
    settings = settings_of(label_smoothing=0.1, clip_grad_norm=0.3)
    training = training_of(model, settings)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    torch.manual_seed(5)
    last = train_epoch(training, 1)
    torch.manual_seed(5)
    total, right = 0.0, 0
    for batch in training.batches.of(1):
        optimizer.zero_grad()
        scores = plain(batch.inputs[0])
        loss = functional.cross_entropy(scores, batch.labels, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
        optimizer.step()
        total += loss.item() * len(batch)
        right += int((scores.argmax(1) == batch.labels).sum())
    assert are_equal(parameters(model), parameters(plain))
    assert torch.equal(model[1].running_mean, plain[1].running_mean)
    assert (last.loss, last.accuracy) == (total / 10, right / 10)


def test_every_step_is_told_with_its_rate_and_phase():
    records = []
    schedule = StepSchedule(step_size=1, gamma=0.5)
    settings = settings_of(schedule=schedule, freeze_observers_after=1, freeze_batch_norm_after=0)
    training = training_of(Classifier(), settings, records=records)
    train_epoch(training, 1)
    last = train_epoch(training, 2)
    assert last == records[-1]
    assert [(r.event, r.epoch, r.step, r.lr) for r in records] == [
        ("step", 1 + number // 3, number + 1, 0.05 * 0.5 ** (number // 3)) for number in range(6)
    ]
    assert {(r.epochs, r.steps) for r in records} == {(2, 6)}
    assert [r.phase for r in records] == ["batch norm frozen"] * 3 + ["observers and batch norm frozen"] * 3
    assert training.model.seen == [(n, False, True) for n in (4, 4, 2)] + [(n, True, True) for n in (4, 4, 2)]
    assert all(r.samples_per_second > 0 for r in records)
    assert [r.seconds for r in records] == sorted(r.seconds for r in records)


def test_autocast_computes_in_bfloat16_and_keeps_float_parameters():
    seen = []
    model = Classifier()
    model[4].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    train_epoch(training_of(model, settings_of(autocast="bfloat16")), 1)
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def train_epochs(training, number):
    for epoch in range(1, number + 1):
        train_epoch(training, epoch)


@pytest.mark.parametrize("lr", [1e30, 1e12])
def test_a_training_that_diverges_ends_with_what_helps(lr):
    training = training_of(Classifier(), settings_of(optimizer=SgdConfig(lr=lr)))
    with pytest.raises(NonFiniteError, match=r"^epoch \d+.*begin with train\.schedule\.warmup_epochs") as caught:
        train_epochs(training, 30)
    assert f"Lower train.optimizer.lr (it is {lr:g})" in str(caught.value)


def test_the_step_of_a_loss_that_is_nan_is_named():
    model = Classifier()
    training = training_of(model, settings_of(), samples=Nan(10))
    before = parameters(model)
    with pytest.raises(NonFiniteError, match=r"^epoch 2, step 4: the loss is nan; nothing was written\. Lower"):
        train_epoch(training, 2)
    assert are_equal(parameters(model), before)


class Nan(Points):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return Sample(name=sample.name, inputs=(sample.inputs[0] * float("nan"),), label=sample.label)


class Unlabelled(Points):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return Sample(name=sample.name, inputs=sample.inputs)


def test_a_parameter_that_is_not_finite_at_the_end_is_named():
    model = Classifier()
    training = training_of(model, settings_of(schedule=ConstantSchedule()), samples=Points(4))
    model[4].bias.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NonFiniteError, match=r"^epoch 1: the parameter '4\.bias' holds NaN or infinity"):
        train_epoch(training, 1)


def test_samples_without_labels_are_an_error():
    with pytest.raises(DataError, match=r"data\.train has samples without labels"):
        train_epoch(training_of(Classifier(), samples=Unlabelled(4)), 1)


def test_a_loss_of_the_users_may_have_no_accuracy():
    settings = settings_of(loss="tests.training.test_loop:square")
    last = train_epoch(training_of(Regression(), settings), 1)
    assert last.accuracy is None
    assert last.loss > 0


def square(outputs, labels):
    return (outputs.squeeze(1) - labels).square().mean()


class Regression(Classifier):
    def forward(self, x):
        return super().forward(x)[:, :1]
