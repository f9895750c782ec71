"""Messages for people: on stderr, one way for all of them, harmless to a terminal."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from qtool.errors import QtoolWarning
from qtool.report.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


def say(text: str) -> None:
    """Write a message to stderr; what file and layer names may carry into a terminal is shown escaped."""
    click.echo(harmless(text), err=True)


def harmless(text: str) -> str:
    r"""Return text of several lines with everything but printable characters escaped.

    Example:
        >>> harmless("layer\x1b[2J\nnext")
        'layer\\x1b[2J\nnext'
    """
    return "\n".join(printable(line) for line in text.expandtabs().split("\n"))


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say qtool's own warnings as messages, each time; Python would print them with a line of source."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", QtoolWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, QtoolWarning):
                say(f"warning: {message}")
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
