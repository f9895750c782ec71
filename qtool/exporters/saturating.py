"""Which nodes of a model another backend than its own would compute wrong. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.saturation.verdict import judge

if TYPE_CHECKING:
    from qtool.backends.record import Backend
    from qtool.stamp.schema import Stamp


def saturating_nodes(stamp: Stamp, record: Backend) -> tuple[str, ...]:
    """Return the names of the nodes whose kernel of a backend can saturate on the CPU that a model was made for."""
    return tuple(
        node.name
        for node in stamp.int8_nodes()
        if node.multiplies_codes and not judge(record, stamp.isa, node.layer).is_right
    )
