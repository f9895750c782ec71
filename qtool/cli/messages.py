"""Messages for people: on stderr, one way for all of them, harmless to a terminal."""

from __future__ import annotations

import click

from qtool.report.untrusted import printable


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
