"""Whether a node needs what not every CPU has: products of 8-bit codes that are summed in int32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.registry import BACKENDS
from qtool.saturation.verdict import judge
from qtool.types import Isa

if TYPE_CHECKING:
    from qtool.stamp.schema import NodeStamp


def requires_full_range(node: NodeStamp) -> bool:
    """Return whether a node multiplies codes of more than 7 bits that some backend could clip on some CPU."""
    return node.uses_full_range and not all(judge(record, Isa.ANY, node.layer).is_right for record in BACKENDS)
