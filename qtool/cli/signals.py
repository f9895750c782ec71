"""SIGTERM and SIGHUP end a command as Ctrl-C does: as an exception, so that what is half done is undone."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """The process was asked to end; not an `Exception`, so that no code that handles errors swallows it."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signal.Signals(signum).name)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM and SIGHUP within the block; signals that the caller ignores (nohup) stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in _ENDING}
    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(signum, _raise)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _raise(signum: int, _frame: FrameType | None) -> None:
    raise Terminated(signum)
