"""How text looks: at a terminal, in a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_WIDTH: Final = 100


@dataclass(frozen=True, kw_only=True)
class Look:
    """How text is to look; other forms look the same everywhere.

    Attributes:
        verbose: leave nothing out.
        width: columns that a line may have.
        color: write ANSI colours.
    """

    verbose: bool = False
    width: int = DEFAULT_WIDTH
    color: bool = False


USUAL_LOOK: Final = Look()
