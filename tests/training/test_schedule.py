import pytest
import torch
from torch.optim import lr_scheduler as torch_schedules

from qtool.config.train import ConstantSchedule, CosineSchedule, StepSchedule
from qtool.training.schedule import WARMUP_START, LearningRate

EPOCHS, STEPS = 10, 7


def rates(schedule, lr=0.5, epochs=EPOCHS, steps=STEPS):
    rate = LearningRate(schedule=schedule, lr=lr, epochs=epochs, steps_per_epoch=steps)
    return [rate.at(step) for step in range(epochs * steps)]


def rates_of_torch(make, *, per_epoch=False, epochs=EPOCHS):
    """The rate of each step by a scheduler of torch's, called after each step or after each epoch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = make(optimizer)
    found = []
    for step in range(epochs * STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if not per_epoch or (step + 1) % STEPS == 0:
            scheduler.step()
    return found


def test_constant():
    assert rates(ConstantSchedule()) == [0.5] * (EPOCHS * STEPS)


def test_step_is_torchs_step_after_each_epoch():
    expected = rates_of_torch(lambda o: torch_schedules.StepLR(o, step_size=3, gamma=0.1), per_epoch=True)
    assert rates(StepSchedule(step_size=3, gamma=0.1)) == pytest.approx(expected, rel=1e-12)
    assert expected[3 * STEPS - 1] == 0.5
    assert expected[3 * STEPS] == pytest.approx(0.05)


def test_cosine_is_torchs_after_each_step():
    expected = rates_of_torch(lambda o: torch_schedules.CosineAnnealingLR(o, T_max=EPOCHS * STEPS, eta_min=0.01))
    assert rates(CosineSchedule(final_lr=0.01)) == pytest.approx(expected, rel=1e-9)


def test_cosine_has_its_textbook_values():
    assert rates(CosineSchedule(), lr=1.0, epochs=1, steps=4) == pytest.approx([1, 0.8535534, 0.5, 0.1464466])


def test_warm_up_is_torchs_linear_and_then_the_schedule_begins():
    def make(optimizer):
        return torch_schedules.SequentialLR(
            optimizer,
            [
                torch_schedules.LinearLR(optimizer, start_factor=WARMUP_START, total_iters=2 * STEPS),
                torch_schedules.CosineAnnealingLR(optimizer, T_max=(EPOCHS - 2) * STEPS),
            ],
            milestones=[2 * STEPS],
        )

    expected = rates_of_torch(make)
    assert rates(CosineSchedule(warmup_epochs=2)) == pytest.approx(expected, rel=1e-9)
    falling = rates(StepSchedule(warmup_epochs=2, step_size=3))
    assert falling[0] == 0.5 * WARMUP_START
    assert falling[2 * STEPS : 5 * STEPS] == [0.5] * (3 * STEPS)
    assert falling[5 * STEPS] == pytest.approx(0.05)


def test_two_epochs_in_one_training_are_not_a_training_of_two():
    """The rate is that of the whole training: a longer one falls more slowly."""
    assert rates(CosineSchedule(), epochs=4)[: 2 * STEPS] != rates(CosineSchedule(), epochs=2)
