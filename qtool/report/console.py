"""Turns rich renderables into text: no markup, no emoji, no highlighting, so `conv[1]` prints as it is."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

MIN_WIDTH = 20
"""Below this nothing can be read; the terminal wraps instead."""


def render(parts: list[RenderableType], *, width: int, color: bool) -> str:
    """Return the parts as text, one below the other, without spaces at line ends.

    Args:
        parts: what to render.
        width: columns that a line may have.
        color: write ANSI colours.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, MIN_WIDTH),
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    for part in parts:
        console.print(part, soft_wrap=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().split("\n")).rstrip("\n") + "\n"
