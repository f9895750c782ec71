"""How far a long step has come: a bar on a terminal, now and then a line elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.cli.messages import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_BETWEEN_LINES = 10.0
"""Chosen so that a log of a long run stays readable."""


@contextmanager
def progress(verb: str, things: str = "samples") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is told `(done, in all)`, of samples unless other things are counted, after each batch.

    Example, not on a terminal:
        >>> with progress("calibrate") as on_batch:
        ...     on_batch(10, 10)  # on stderr: calibrate: 10 of 10 samples
    """
    if not sys.stderr.isatty():
        yield batch_lines(verb, things)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True, markup=False, emoji=False, highlight=False), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def batch_lines(verb: str, things: str = "samples") -> Callable[[int, int], None]:
    """Return a function that is told `(done, in all)`, and says a line now and then and at the end."""
    last = time.monotonic()

    def on_batch(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(f"{verb}: {done} of {total} {things}")

    return on_batch
