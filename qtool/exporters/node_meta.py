"""Keeps torch's own notes out of what nodes say of themselves.

While torch traces a program, `torch.fx.traceback.annotate` writes into the dict `meta["custom"]` of the node at hand,
which the traced program shares: both would be saved with it, and the converted model would have other bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.passes.to_reference import NODE_STAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

_CUSTOM = "custom"


@contextmanager
def unchanged_meta(exported: ExportedProgram) -> Iterator[None]:
    """Give a program its nodes' `meta["custom"]` back when the block ends."""
    before = {node: dict(node.meta[_CUSTOM]) for node in exported.graph.nodes if _CUSTOM in node.meta}
    try:
        yield
    finally:
        for node, custom in before.items():
            node.meta[_CUSTOM] = custom


def keep_only_stamps(exported: ExportedProgram) -> ExportedProgram:
    """Leave nothing but qtool's stamp in each node's `meta["custom"]`; returns its argument."""
    for node in exported.graph.nodes:
        custom = node.meta.pop(_CUSTOM, {})
        if NODE_STAMP in custom:
            node.meta[_CUSTOM] = {NODE_STAMP: custom[NODE_STAMP]}
    return exported
