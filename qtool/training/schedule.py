"""The learning rate of each step, from the number of the step alone: nothing to save, nothing to resume."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from qtool.config.train import ConstantSchedule, CosineSchedule, StepSchedule

if TYPE_CHECKING:
    from qtool.config.train import Schedule

WARMUP_START = 0.01
"""The share of the learning rate that a warm-up begins with. Source: torchvision's references, --lr-warmup-decay."""


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """The learning rate over a whole training.

    Attributes:
        schedule: how it changes.
        lr: the rate that the optimizer is given, where the schedule begins.
        epochs: epochs of the training.
        steps_per_epoch: optimizer steps of an epoch.

    Source: with N steps after a warm-up of W, as torch.optim.lr_scheduler's LinearLR(WARMUP_START, total_iters=W),
    then CosineAnnealingLR(T_max=N), both stepped after each step, or StepLR stepped after each epoch.

    Example:
        >>> rate = LearningRate(schedule=CosineSchedule(), lr=1.0, epochs=2, steps_per_epoch=2)
        >>> [round(rate.at(step), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """

    schedule: Schedule
    lr: float
    epochs: int
    steps_per_epoch: int

    def at(self, step: int) -> float:
        """Return the rate of a step, counted from 0 over all epochs."""
        warmup = self.schedule.warmup_epochs * self.steps_per_epoch
        if step < warmup:
            return self.lr * (WARMUP_START + (1 - WARMUP_START) * step / warmup)
        done, num_steps = step - warmup, self.epochs * self.steps_per_epoch - warmup
        match self.schedule:
            case ConstantSchedule():
                return self.lr
            case StepSchedule(step_size=step_size, gamma=gamma):
                return self.lr * gamma ** (done // self.steps_per_epoch // step_size)
            case CosineSchedule(final_lr=final):
                return final + (self.lr - final) * (1 + math.cos(math.pi * done / num_steps)) / 2
            case _:
                assert_never(self.schedule)
