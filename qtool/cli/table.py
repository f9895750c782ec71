"""A table as text: columns aligned, nothing else, so that `grep` and `awk` work on it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.cli.messages import harmless

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> str:
    """Return the rows under their header, columns two spaces apart.

    Args:
        header: the columns' names.
        rows: as many cells each.
        right: names of the columns whose cells are numbers and end in line.

    Example:
        >>> print(text_table(("node", "steps"), [("conv", "1"), ("classifier", "0")], right={"steps"}))
        node        steps
        conv            1
        classifier      0
    """
    lines = [[harmless(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    aligned = [
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in aligned)
