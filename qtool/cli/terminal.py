"""How wide and how colourful a result may be: a terminal's width there, whole lines and no colour elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qtool.cli.streams import Stdout

UNLIMITED_WIDTH = 1000
"""For files and pipes: nothing is cut, and no line of ours is longer."""

USUAL_WIDTH = 80
"""For a terminal that does not say how wide it is."""


def width_of(stdout: Stdout) -> int:
    """Return the columns that a line may have; the variable COLUMNS overrides what a terminal says."""
    if not stdout.is_terminal or stdout.descriptor is None:
        return UNLIMITED_WIDTH
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated[:9]) > 0:
        return min(int(stated[:9]), UNLIMITED_WIDTH)
    return os.get_terminal_size(stdout.descriptor).columns or USUAL_WIDTH


def has_color(stdout: Stdout) -> bool:
    """Tell whether colours may be used; the variable NO_COLOR switches them off (https://no-color.org)."""
    return stdout.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
