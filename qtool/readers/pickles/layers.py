"""The layers of a pickled model, in the order of the file, each told by the first reader that knows it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from qtool.readers.pickles.fake_quantized import fake_quantized_layers, is_part_of_training
from qtool.readers.pickles.float_layers import float_layers
from qtool.readers.pickles.torch_ao import quantized_layers
from qtool.readers.pickles.torchao import torchao_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.readers.facts import Node
    from qtool.readers.pickles.table import Table

_READERS: Final[tuple[Callable[[Table, str], Iterator[Node]], ...]] = (
    torchao_layers,
    quantized_layers,
    fake_quantized_layers,
    float_layers,
)


def layers_of(table: Table) -> tuple[Node, ...]:
    """Return the layers that are quantized, in training for it, or have a float weight.

    Their names are module paths: where only one dict or module of the file holds parameters, they begin inside it.
    """
    roots = table.content.roots
    root = f"{roots[0]}." if len(roots) == 1 and roots[0] else ""
    nodes: list[Node] = []
    for path in table.layers:
        if is_part_of_training(table, path) or _is_in_tensor(table, path):
            continue
        nodes += _layers_at(table, path)
    if root:
        nodes = [dataclasses.replace(node, name=node.name.removeprefix(root)) for node in nodes]
    return tuple(nodes)


def _layers_at(table: Table, path: str) -> list[Node]:
    for reader in _READERS:
        nodes = list(reader(table, path))
        if nodes:
            return nodes
    return []


def _is_in_tensor(table: Table, path: str) -> bool:
    """Return whether a path lies in a tensor subclass, as the scales of a weight do."""
    wrappers = table.content.wrappers
    return bool(wrappers) and any(path[: dot.start()] in wrappers for dot in re.finditer(r"\.|$", path))
