"""Layers that share a weight share its packed form, so that it is held once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtool.lowering.packed import PackedMac
from qtool.lowering.plain import PlainConv, PlainLinear

if TYPE_CHECKING:
    from torch.fx import GraphModule


def share_weights(module: GraphModule) -> None:
    """Let packed layers whose weights were packed from the same hold one; called while what they were made of lives."""
    first: dict[tuple[object, ...], Any] = {}
    for kernel in module.modules():
        if isinstance(kernel, PackedMac):
            kernel.packed = first.setdefault(kernel.packing, kernel.packed)
        elif isinstance(kernel, (PlainConv, PlainLinear)):
            kernel.weight = first.setdefault(kernel.packing, kernel.weight)
