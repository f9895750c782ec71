"""What an exception means for the person at the terminal: a message on stderr and an exit status."""

from __future__ import annotations

import errno
import shlex
import signal
import traceback
from typing import TYPE_CHECKING

import click

from qtool._version import __version__
from qtool.cli.messages import harmless, say
from qtool.cli.signals import Terminated
from qtool.cli.streams import has_stdout_reader
from qtool.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_MODEL, EXIT_USAGE, ConfigError, QtoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CLOSED_PIPE = 128 + signal.SIGPIPE
"""What a shell reports for `cat` and the like when their reader goes away."""


def report_failure(error: BaseException, arguments: Sequence[str], *, show_traceback: bool) -> int:
    """Tell on stderr what went wrong, and return the exit status that says it to the shell.

    Args:
        error: what ended the command.
        arguments: the command line without the program's name.
        show_traceback: print the stack too.

    Returns:
        The error's own status (2 usage, 3 model, 4 missing), 130 after Ctrl-C, 128 + n after signal n, 141 when
        the reader of stdout went away, 70 for a fault of qtool.
    """
    if isinstance(error, BrokenPipeError) and not has_stdout_reader():
        return EXIT_CLOSED_PIPE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if show_traceback:
        say("".join(traceback.format_exception(error)).rstrip())
    return _explain(error, arguments)


def _explain(error: BaseException, arguments: Sequence[str]) -> int:
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    who = _who(arguments)
    match error:
        case ConfigError():
            status, text = error.exit_code, str(error)  # lines begin with file:line:column, which editors open
        case QtoolError():
            status, text = error.exit_code, "\n".join([f"{who}: {error}", *_notes(error)])
        case KeyboardInterrupt() | click.Abort():
            status, text = EXIT_INTERRUPTED, f"{who}: interrupted; {_left_behind(error)}"
        case Terminated():
            status, text = 128 + error.signum, f"{who}: ended by {error}; {_left_behind(error)}"
        case SystemExit():
            culprit = "code that the command ran (the model's, the data's or an import's)"
            status, text = EXIT_MODEL, f"{who}: {culprit} called sys.exit({error.code!r}); nothing was written"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            status, text = EXIT_USAGE, f"{who}: {error.strerror}; make room and run it again"
        case _:
            status, text = EXIT_INTERNAL, _internal_error(error, arguments)
    say(text)
    return status


def _left_behind(error: BaseException) -> str:
    return "; ".join(_notes(error)) or "nothing was written"


def _notes(error: BaseException) -> list[str]:
    """Return what the command has added to an error on its way: what is left to go on from."""
    return list(getattr(error, "__notes__", ()))


def _internal_error(error: BaseException, arguments: Sequence[str]) -> str:
    first_line = next(iter(str(error).splitlines()), "")
    command = shlex.join(["qtool", "--traceback", *(a for a in arguments if a != "--traceback")])
    return (
        f"{_who(arguments)}: internal error: {type(error).__name__}: {first_line}\n"
        f"This is a fault in qtool {__version__}, not in what you asked for. "
        f"Please report it with the output of:\n  {harmless(command)}"
    )


def _who(arguments: Sequence[str]) -> str:
    """Name the command, for in a pipeline several may speak at once."""
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    return f"qtool {name}".rstrip()
