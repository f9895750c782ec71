"""Parameters that several ops read: what the plan says where they are stored more than once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch.fx import Node

    from qtool.passes.match import Match


def tied_notes(matches: Collection[Match], int8: Collection[Match], names: Mapping[Node, str]) -> dict[Match, str]:
    """Return a note for each op that reads the weight of an int8 layer but cannot read the int8 codes of it.

    Capture has one node for a parameter, whatever its names. An int8 weight is stored once for all layers that read it
    with the same bias and batch norm: those decide on its scales.

    Args:
        matches: all patterns.
        int8: those that run in int8.
        names: name of every op.

    Example:
        An embedding whose table is the weight of the int8 layer `head`: "its parameter is the weight of 'head' too,
        stored in float here and in int8 there".
    """
    users: defaultdict[Node, list[Match]] = defaultdict(list)
    for match in matches:
        if match in int8 and match.op in MAC_OPS:
            users[match.node.args[1]].append(match)  # type: ignore[index]
    notes = {}
    for match in matches:
        for source in match.node.all_input_nodes:
            first = next(iter(users.get(source, ())), None)
            if first is None or first is match:
                continue
            other = names[first.node]
            if match not in int8:
                notes[match] = f"its parameter is the weight of {other!r} too, stored in float here and in int8 there"
            elif _folded(match) != _folded(first):
                notes[match] = f"its weight is that of {other!r}, stored twice: bias or batch norm differ"
    return notes


def _folded(match: Match) -> tuple[object, ...]:
    return (*match.node.args[2:3], *(match.batch_norm.args[1:5] if match.batch_norm else ()))
