"""How a training goes: a line for each epoch, and between them a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.cli.messages import harmless, say
from qtool.cli.progress import SECONDS_BETWEEN_LINES, batch_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.training.metrics import Record

    OnBatch = Callable[[int, int], None]
    OnRecord = Callable[[Record], None]


@contextmanager
def training_progress() -> Iterator[tuple[OnBatch, OnRecord]]:
    """Yield what is told the samples of calibration, and what is told every record of the training after it.

    Example, not on a terminal:
        >>> with training_progress() as (on_batch, on_record):
        ...     train_from_config(config, listeners=Listeners(on_batch=on_batch, on_record=on_record))  # on stderr:
        calibrate: 100 of 100 samples
        epoch 1/2, observe: loss 0.7021, accuracy 0.812, evaluate 0.934, lr 0.01, 4310 samples/s, 3 s left
    """
    if not sys.stderr.isatty():
        yield batch_lines("calibrate"), _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with Progress(TextColumn("{task.description}", markup=False), BarColumn(), console=console, transient=True) as bar:
        task = bar.add_task("calibrate", total=None)
        clock = _Clock()

        def on_record(record: Record) -> None:
            line = harmless(clock.line(record))
            if record.event == "epoch":
                console.print(line)
            bar.update(task, completed=record.step, total=record.steps, description=line)

        yield lambda done, total: bar.update(task, completed=done, total=total), on_record


class _Clock:
    """Puts records into words, and knows how long a step takes since the training began or was resumed."""

    def __init__(self) -> None:
        self._first_step = 0

    def line(self, record: Record) -> str:
        if record.event == "start":
            self._first_step = record.step
            return f"train: {record.epochs} epochs" + (f", {record.epoch} done" if record.epoch else "")
        if record.event == "end":
            return "train: done"
        step = "" if record.event == "epoch" else f", step {record.step}/{record.steps}"
        return f"epoch {record.epoch}/{record.epochs}{step}, {record.phase}: {', '.join(self._measured(record))}"

    def _measured(self, record: Record) -> Iterator[str]:
        yield f"loss {record.loss:.4f}"
        if record.accuracy is not None:
            yield f"accuracy {record.accuracy:.3f}"
        if record.evaluate_accuracy is not None:
            yield f"evaluate {record.evaluate_accuracy:.3f}"
        yield f"lr {record.lr:.3g}"
        yield f"{record.samples_per_second:.0f} samples/s"
        if record.step < record.steps:
            seconds = record.seconds / max(record.step - self._first_step, 1) * (record.steps - record.step)
            yield f"{in_words(seconds)} left"


class _Lines:
    """Says a line for each epoch, and for a step when the last line is long ago."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._last = time.monotonic()

    def __call__(self, record: Record) -> None:
        line = self._clock.line(record)
        is_due = time.monotonic() - self._last >= SECONDS_BETWEEN_LINES
        if record.event == "epoch" or (record.event == "step" and is_due):
            self._last = time.monotonic()
            say(line)


def in_words(seconds: float) -> str:
    """Return a duration for people.

    Example:
        >>> in_words(7.2), in_words(100), in_words(7384)
        ('7 s', '1 min 40 s', '2 h 3 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
