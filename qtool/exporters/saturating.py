"""Which nodes of a model another backend than its own would compute wrong. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.ranges import would_saturate

if TYPE_CHECKING:
    from qtool.backends.record import Backend
    from qtool.stamp.schema import Stamp


def saturating_nodes(stamp: Stamp, record: Backend) -> tuple[str, ...]:
    """Return the names of the nodes whose kernel of a backend can saturate on the CPU that a model was made for."""
    return tuple(
        node.name
        for node in stamp.int8_nodes()
        if node.requires_full_range
        and node.op is not None
        and would_saturate(
            record, stamp.isa, node.op, depthwise=node.depthwise, channel_multiplier=node.channel_multiplier
        )
    )
