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
_received: list[int] = []


class Terminated(BaseException):
    """The process was asked to end; not an `Exception`, so that no code that handles errors swallows it."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signal.Signals(signum).name)


@contextmanager
def raised_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM and SIGHUP within the block; signals that the caller ignores (nohup) stay so.

    An extension module that is being imported may swallow the exception. If it then fails with one of its own, the
    signal, or Ctrl-C, is still what ended the block; if it goes on, `end_if_asked` ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, *_ENDING)}
    _received.clear()
    for signum, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, _end)
    try:
        yield
    except Exception as error:
        if _received:
            raise _ending(_received[0]) from error
        raise
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        _received.clear()


def end_if_asked() -> None:
    """Raise what a signal within the block has raised before, in case somebody swallowed it.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        Terminated: SIGTERM or SIGHUP came.
    """
    if _received:
        raise _ending(_received[0])


def _end(signum: int, _frame: FrameType | None) -> None:
    _received.append(signum)
    raise _ending(signum)


def _ending(signum: int) -> BaseException:
    return KeyboardInterrupt() if signum == signal.SIGINT else Terminated(signum)
