"""Messages for people: on stderr, one way for all of them, harmless to a terminal."""

from __future__ import annotations

import click

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def say(text: str) -> None:
    """Write a message to stderr; control characters, which file and layer names may carry, are shown escaped."""
    click.echo(harmless(text), err=True)


def harmless(text: str) -> str:
    r"""Return the text with terminal control characters escaped.

    Example:
        >>> harmless("layer\x1b[2J")
        'layer\\x1b[2J'
    """
    return text.translate(_CONTROLS)
