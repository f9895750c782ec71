"""The table of nodes that reports and plans share: wide where it fits, else one short paragraph a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qtool.report.untrusted import shortened
from qtool.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

_TENSOR_COLUMNS = (
    "tensor", "dtype", "qmin", "qmax", "seen", "granularity", "axis", "reduce_range", "scale", "zero_point", "size",
)  # fmt: skip
_NUMBERS = frozenset({"qmin", "qmax", "axis", "size"})
_MAX_NODE_WIDTH = 40
_MIN_WHY_WIDTH = 30
_MAX_WHY_WIDTH = 60
_FLOAT, _QUANTIZED = "yellow", "green"


@dataclass(frozen=True, kw_only=True)
class TensorCells:
    """One tensor of a node, as words; an empty word is a cell that says nothing.

    Attributes:
        tensor: its role: input, weight or output.
        dtype: dtype of the codes.
        qmin: smallest code.
        qmax: largest code.
        seen: the codes that a weight really has.
        granularity: `tensor`, `channel` or `group`.
        axis: the channel axis.
        reduce_range: `yes` or `no`; empty for weights.
        scale: its scale, or the smallest and largest.
        zero_point: likewise.
        size: what it takes in the file.
    """

    tensor: str
    dtype: str
    qmin: str
    qmax: str
    granularity: str
    axis: str
    reduce_range: str
    seen: str = ""
    scale: str = ""
    zero_point: str = ""
    size: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeCells:
    """One node, as words.

    Attributes:
        name: the node's name; untrusted text.
        compute: how it computes, for example `int8` or `float`.
        pattern: op and fused activation, for example `conv2d + relu`.
        backend: the backend it is for.
        why: what else is to be said; untrusted text.
        tensors: its quantized tensors.
    """

    name: str
    compute: str
    pattern: str
    backend: str
    why: str
    tensors: tuple[TensorCells, ...]


def node_table(nodes: Sequence[NodeCells], *, width: int) -> list[RenderableType]:
    """Return the nodes as renderables: a table if `width` columns are enough for one, else paragraphs."""
    columns = [name for name in _TENSOR_COLUMNS if any(getattr(each, name) for node in nodes for each in node.tensors)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    full, narrow = (_natural_width(nodes, columns, limit) for limit in (width, _MAX_NODE_WIDTH))
    # A name that is cut in two cannot be searched for, so it is cut only where the table would not fit otherwise.
    is_whole = full <= width
    table.add_column("node", overflow="fold", no_wrap=is_whole, max_width=None if is_whole else _MAX_NODE_WIDTH)
    for name in ("as", *columns, "backend"):
        table.add_column(name, no_wrap=True, justify="right" if name in _NUMBERS else "left")
    table.add_column("why", overflow="fold", min_width=_MIN_WHY_WIDTH, max_width=_MAX_WHY_WIDTH)
    for node in nodes:
        table.add_row(*_cells(node, columns))
    return [table] if narrow <= width else [part for node in nodes for part in _paragraph(node)]


def _cells(node: NodeCells, columns: Sequence[str]) -> list[Text]:
    tensors = [Text("\n".join(getattr(each, name) or "-" for each in node.tensors)) for name in columns]
    return [Text(shortened(node.name)), _as_text(node), *tensors, Text(node.backend), Text(shortened(node.why))]


def _as_text(node: NodeCells) -> Text:
    text = Text().append(node.compute, style=_FLOAT if node.compute == Verdict.FLOAT else _QUANTIZED)
    return text.append(f" {shortened(node.pattern)}")


def _natural_width(nodes: Sequence[NodeCells], columns: Sequence[str], max_node_width: int) -> int:
    """Return the columns that the table needs, with names of at most `max_node_width`.

    Rich would squeeze cells to one letter a line instead of giving up.
    """
    names = min(max_node_width, max((cell_len(shortened(node.name)) for node in nodes), default=4))
    patterns = max((len(node.compute) + 1 + cell_len(shortened(node.pattern)) for node in nodes), default=2)
    backends = max((cell_len(node.backend) for node in nodes), default=7)
    tensors = [
        max(len(name), *(cell_len(getattr(each, name)) for node in nodes for each in node.tensors)) for name in columns
    ]
    widths = [max(4, names), max(2, patterns), *tensors, max(7, backends), _MIN_WHY_WIDTH]
    return sum(widths) + 2 * len(widths)


def _paragraph(node: NodeCells) -> list[RenderableType]:
    head = Text().append(shortened(node.name), style="bold").append(": ").append(_as_text(node))
    if node.tensors:
        head.append(f", {node.backend}")
    lines: list[RenderableType] = [head]
    lines += [Padding(Text(_tensor_line(each)), (0, 0, 0, 2)) for each in node.tensors]
    if node.why:
        lines.append(Padding(Text(shortened(node.why), style="dim"), (0, 0, 0, 2)))
    return lines


def _tensor_line(each: TensorCells) -> str:
    codes = f" {each.qmin}..{each.qmax}" if each.qmin else ""
    granularity = f" per {each.granularity}" if each.granularity else ""
    axis = f", axis {each.axis}" if each.axis else ""
    reduced = ", reduced" if each.reduce_range == "yes" else ""
    scale = f", scale {each.scale}, zero point {each.zero_point or '0'}" if each.scale else ""
    seen = f", seen {each.seen}" if each.seen else ""
    size = f", {each.size}" if each.size else ""
    return f"{each.tensor} {each.dtype}{codes}{granularity}{axis}{reduced}{scale}{seen}{size}"
