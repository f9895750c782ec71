"""What a training step costs in memory and time, beside another way to take the same step."""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from qtool.training.malloc import Malloc, has_glibc, set_malloc
from qtool.training.resident_size import growth_of, peak_over_base, settle
from qtool.training.saved_bytes import saved_by

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

WARM_UPS = 2
"""Steps before anything is measured: the first allocates gradients and momentum, and builds what is built once."""

PEAK_STEPS = 3
"""Steps of which the median peak is taken (chosen: peaks repeat within some per cent)."""


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """One way to take a training step; called, it takes one.

    Attributes:
        name: what people call it.
        model: in train mode.
        optimizer: of its parameters.
        inputs: what the model is called with.
        loss: the scalar to follow, from what the model returns.
        autocast: whether the forward pass runs under bfloat16 autocast.
    """

    name: str
    model: nn.Module
    optimizer: Optimizer
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Tensor]
    autocast: bool = False

    def __call__(self) -> None:
        """Change the parameters once, as a training loop does: old gradients go first."""
        self.optimizer.zero_grad()
        self.forward().backward()
        self.optimizer.step()

    def forward(self) -> Tensor:
        """Return the loss, which holds all that the backward pass needs."""
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.autocast else nullcontext():
            return self.loss(self.model(*self.inputs))


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """What one way costs, and how it stands to the first of those measured with it.

    Attributes:
        name: of the way.
        saved_bytes: storages alive between forward and backward that were not before, parameters and buffers left out.
        growth_bytes: by how much the resident size grew in the same forward pass: a check of `saved_bytes`.
        default_peak_bytes: highest resident size of a step over the one before it, under glibc's default malloc.
        peak_bytes: the same under the fixed setting.
        seconds: median of a step.
        saved_ratio: `saved_bytes` over that of the first.
        default_peak_ratio: `default_peak_bytes` over that of the first.
        peak_ratio: `peak_bytes` over that of the first.
        step_ratio: median of the ratios round by round to the first.
    """

    name: str
    saved_bytes: int
    growth_bytes: int
    default_peak_bytes: int
    peak_bytes: int
    seconds: float
    saved_ratio: float
    default_peak_ratio: float
    peak_ratio: float
    step_ratio: float


def compare(
    steps: Sequence[TrainingStep],
    *,
    rounds: int,
    malloc: Malloc = Malloc.RETURN,
    on_step: Callable[[int, int], None] | None = None,
) -> list[StepCost]:
    """Measure several ways to take a training step, in turn and in this process.

    Peaks are taken under malloc as it is, and then again, with all else, under a fixed setting, which the process
    keeps. Every round takes one step of each, so that a machine whose speed drifts changes numerator and denominator
    alike; read ratios, not seconds.

    Args:
        steps: the first is what the others are compared with.
        rounds: steps timed of each, at least 1; ten or more for a ratio to rely on.
        malloc: the fixed setting.
        on_step: told the number of steps done, and of all.
    """
    took = _Counter(len(steps) * (WARM_UPS + 2 * PEAK_STEPS + rounds), on_step)
    for step in steps:
        for _ in range(WARM_UPS):
            took.one(step)
    default_peaks = _peaks(steps, took)
    if has_glibc():
        set_malloc(malloc)
    peaks = _peaks(steps, took)
    saved = [_saved_bytes(step) for step in steps]
    growth = [growth_of(step.forward) for step in steps]
    seconds = _seconds(steps, rounds, took)
    return [
        StepCost(
            name=step.name,
            saved_bytes=saved[i],
            growth_bytes=growth[i],
            default_peak_bytes=default_peaks[i],
            peak_bytes=peaks[i],
            seconds=statistics.median(seconds[i]),
            saved_ratio=_ratio(saved[i], saved[0]),
            default_peak_ratio=_ratio(default_peaks[i], default_peaks[0]),
            peak_ratio=_ratio(peaks[i], peaks[0]),
            step_ratio=statistics.median(a / b for a, b in zip(seconds[i], seconds[0], strict=True)),
        )
        for i, step in enumerate(steps)
    ]


@dataclass
class _Counter:
    """Takes steps and tells how many."""

    total: int
    on_step: Callable[[int, int], None] | None
    done: int = 0

    def one(self, step: TrainingStep) -> float:
        """Take a step; return the seconds it took."""
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        self.done += 1
        if self.on_step is not None:
            self.on_step(self.done, self.total)
        return seconds


def _peaks(steps: Sequence[TrainingStep], took: _Counter) -> list[int]:
    """Return the median peak of each."""
    found: list[list[int]] = [[] for _ in steps]
    settle()
    for _ in range(PEAK_STEPS):
        for peaks, step in zip(found, steps, strict=True):
            with peak_over_base() as peak:
                took.one(step)
            peaks.append(peak.num_bytes)
    return [int(statistics.median(peaks)) for peaks in found]


def _saved_bytes(step: TrainingStep) -> int:
    return saved_by(step.forward, step.model).num_bytes


def _seconds(steps: Sequence[TrainingStep], rounds: int, took: _Counter) -> list[list[float]]:
    """Return the seconds of each in every round; who goes first changes from round to round."""
    found: list[list[float]] = [[] for _ in steps]
    settle()
    for number in range(rounds):
        for turn in range(len(steps)):
            i = (number + turn) % len(steps)
            found[i].append(took.one(steps[i]))
    return found


def _ratio(value: int, reference: int) -> float:
    """Return the quotient; of nothing by nothing 1."""
    return value / reference if reference else 1.0 if not value else float("inf")
