"""The nodes that matter, a line each: what it is, its codes, its size, and why it matters; narrow, two short lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qtool.readers.facts import Role
from qtool.report.node_words import (
    compute_words,
    input_words,
    note_words,
    pattern_words,
    stored_bytes,
    weight_words,
)
from qtool.report.quantities import size_words
from qtool.report.untrusted import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from qtool.inspection.nodes import NodeReport

_COLUMNS: Final = ("node", "as", "input", "weight", "size", "note")
_LEFT_OUT: Final = ((), ("size",), ("size", "weight"), ("size", "weight", "input"))
"""Columns that a narrower terminal goes without; --verbose tells all of it."""

_MIN_NOTE_WIDTH: Final = 24
_MAX_NODE_WIDTH: Final = 40
_GAP: Final = 2


def node_lines(nodes: Sequence[NodeReport], *, width: int) -> list[RenderableType]:
    """Return the nodes as a table of the columns that there is room for, or if that is too few, as two lines each."""
    rows = [_words(node) for node in nodes]
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in _COLUMNS[:-1]}
    widths["node"] = min(widths["node"], _MAX_NODE_WIDTH)
    for left_out in _LEFT_OUT:
        columns = [name for name in widths if name not in left_out]
        if sum(widths[name] + _GAP for name in columns) + _MIN_NOTE_WIDTH <= width:
            return [_table(rows, nodes, {name: widths[name] for name in columns})]
    return [part for row, node in zip(rows, nodes, strict=True) for part in _paragraph(row, node)]


def _table(rows: Sequence[Mapping[str, str]], nodes: Sequence[NodeReport], widths: Mapping[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False)
    for name, width in widths.items():
        table.add_column(name, width=width, overflow="fold", justify="right" if name == "size" else "left")
    table.add_column("note", overflow="fold")
    for row, node in zip(rows, nodes, strict=True):
        table.add_row(*(_as_text(node) if name == "as" else Text(row[name]) for name in (*widths, "note")))
    return table


def _words(node: NodeReport) -> dict[str, str]:
    size = stored_bytes(node)
    return {
        "node": shortened(node.name),
        "as": _as_text(node).plain,
        "input": shortened(input_words(node)),
        "weight": shortened(weight_words(node.tensor(Role.WEIGHT))),
        "size": size_words(size) if size else "",
        "note": shortened(note_words(node)),
    }


def _as_text(node: NodeReport) -> Text:
    text = Text().append(compute_words(node), style="green" if node.is_quantized else "yellow")
    return text.append(f" {shortened(pattern_words(node), 80)}")


def _paragraph(row: Mapping[str, str], node: NodeReport) -> list[RenderableType]:
    head = Text().append(row["node"], style="bold").append(": ").append(_as_text(node))
    return [head, Padding(Text(row["note"]), (0, 0, 0, 2))] if row["note"] else [head]
