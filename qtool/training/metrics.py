"""What a training reports while it runs: records, and the JSONL file that they are appended to."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

START, STEP, EPOCH, END = "start", "step", "epoch", "end"
"""The events, in the order of a training's life; every epoch has its steps and then one `epoch`."""
_BEGINNING = b'{"event": '


@dataclass(frozen=True, kw_only=True)
class Record:
    """One thing that happened.

    Attributes:
        event: `start` (also after a resume), `step`, `epoch` or `end`.
        epoch: the epoch, counted from 1; at `start` the number of those that were complete already.
        epochs: epochs of the whole training.
        step: optimizer steps made, over all epochs.
        steps: optimizer steps of the whole training.
        phase: what is frozen, see `qtool.training.phase`.
        lr: learning rate of the last step.
        loss: mean loss over this epoch's samples so far.
        accuracy: share of this epoch's samples so far whose class the model chose right, as they were trained on;
            None if the model has no classes.
        evaluate_loss: cross entropy on data.evaluate, at `epoch`.
        evaluate_accuracy: accuracy of the fake-quantized model on data.evaluate, at `epoch`; at `end` that of the
            model that is written.
        samples_per_second: since the epoch began, training alone.
        seconds: since the training began, or was resumed.
    """

    event: str
    epoch: int
    epochs: int
    step: int
    steps: int
    phase: str | None = None
    lr: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    evaluate_loss: float | None = None
    evaluate_accuracy: float | None = None
    samples_per_second: float | None = None
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the record as one line of JSON, without what it does not know."""
        known = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        return json.dumps(known, allow_nan=False)


class MetricsFile:
    """Appends records to a file, each on a line of its own that is in the file before the training goes on.

    Args:
        path: the file; what it holds is kept.
        every: write each step whose number is a multiple of this; other events are always written.

    Raises:
        UsageError: the file cannot be written, or holds something else than records.
    """

    def __init__(self, path: Path, *, every: int) -> None:
        self._path = path
        self._every = every
        try:
            _check_holds_records(path)
            self._file = path.open("a", encoding="utf-8")
        except UsageError:
            raise
        except (OSError, ValueError) as error:
            raise self._cannot_write(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what could not be written was told by `write`
            self._file.close()

    def write(self, record: Record) -> None:
        """Append a record, unless it is a step that is left out."""
        if record.event == STEP and record.step % self._every:
            return
        try:
            self._file.write(f"{record.to_json()}\n")
            self._file.flush()
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError | ValueError) -> UsageError:
        reason = getattr(error, "strerror", None) or error
        return UsageError(f"--metrics: cannot write {str(self._path)!r}: {reason}")


def _check_holds_records(path: Path) -> None:
    """Refuse to append to what is no file of metrics: a model, a config or a picture would be spoilt.

    Raises:
        UsageError: the file is there, is not empty, and does not begin with a record.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        begins = file.read(len(_BEGINNING))
    if begins and begins != _BEGINNING:
        msg = f"--metrics: {str(path)!r} holds something else than metrics, which lines would spoil; name another file"
        raise UsageError(msg)
