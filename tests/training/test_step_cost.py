"""compare: the first way is 1, ratios are of what each kept and held, every way is stepped equally often."""

import pytest
import torch
from torch import nn

from qtool.training.step_cost import PEAK_STEPS, WARM_UPS, TrainingStep, compare

WIDTH = 512


class Net(nn.Module):
    def __init__(self, copies):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.copies = copies
        self.num_steps = 0

    def forward(self, x):
        self.num_steps += 1
        return sum((x * self.weight * (n + 1)).sin().sum() for n in range(self.copies))


def step(name, copies, **options):
    model = Net(copies)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.ones(WIDTH, WIDTH)
    return TrainingStep(name=name, model=model, optimizer=optimizer, inputs=(x,), loss=lambda y: y, **options)


def test_ratios_to_the_first():
    told = []
    steps = [step("one", 1), step("three", 3)]
    one, three = compare(steps, rounds=3, on_step=lambda *counts: told.append(counts))
    assert (one.name, three.name) == ("one", "three")
    assert (one.saved_ratio, one.peak_ratio, one.default_peak_ratio, one.step_ratio) == (1, 1, 1, 1)
    assert three.saved_ratio == pytest.approx(3, rel=0.01)
    assert three.saved_bytes >= 3 * 4 * WIDTH * WIDTH
    assert three.growth_bytes == pytest.approx(three.saved_bytes, rel=0.1)
    assert three.peak_bytes > three.saved_bytes
    assert three.step_ratio > 1.5
    total = 2 * (WARM_UPS + 2 * PEAK_STEPS + 3)
    assert told == [(n + 1, total) for n in range(total)]
    assert steps[0].model.num_steps == steps[1].model.num_steps


def test_autocast_keeps_half_of_it():
    def linears(autocast):
        model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(6)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        x = torch.ones(4096, 64)
        return TrainingStep(
            name="", model=model, optimizer=optimizer, inputs=(x,), loss=lambda y: y.sum(), autocast=autocast
        )

    _, half = compare([linears(False), linears(True)], rounds=1)
    # Six inputs at half the size, where float keeps five: its first is the caller's. Cast weights are kept too.
    assert half.saved_ratio == pytest.approx(6 / 10, rel=0.05)
