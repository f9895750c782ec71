"""Settle: from what observers saw to the scale and zero point of every activation and weight."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from qtool.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Collection

    from qtool.passes.insert import Prepared
    from qtool.plan import EdgePlan, Plan


@torch.no_grad()
def settle(prepared: Prepared, plan: Plan, *, observed: Collection[str] | None = None) -> None:
    """Set the parameters of every point whose observers saw data.

    Edges of one group get the parameters of their merged statistics, so cat and its inputs agree bit for bit.
    A weight is settled after its input, since its scale must leave room for the bias in units of both scales.

    Args:
        prepared: the points.
        plan: which of them belong together.
        observed: names of the edges whose statistics count; the others take the parameters of their group. None: all.
    """
    for members in edges_by_group(plan).values():
        points = [prepared.activations[edge.name] for edge in members]
        counted = [p for p in points if observed is None or p.edge in observed]
        if not counted or not all(point.has_seen_data for point in counted):
            continue
        first, *others = (point.observer for point in counted)
        statistics = first.merged(others) if others else first
        qparams = statistics.qparams(members[0].spec)
        for point in points:
            point.settle(qparams)
    for name in prepared.distinct_weights():
        _settle_weight(prepared, plan, name)


def edges_by_group(plan: Plan) -> dict[str, list[EdgePlan]]:
    """Return the edges of each group, by its name."""
    groups: defaultdict[str, list[EdgePlan]] = defaultdict(list)
    for edge in plan.edges:
        groups[edge.group].append(edge)
    return groups


def _settle_weight(prepared: Prepared, plan: Plan, owner: str) -> None:
    point = prepared.weights[owner]
    users = [node for node in plan.nodes if prepared.weights.get(node.name) is point]
    inputs = [prepared.activations[node.inputs[0]] for node in users]
    if not all(activation.is_calibrated for activation in inputs):
        return
    # The smallest: a bias is stored in units of it, and must fit at every call.
    input_scale = torch.stack([activation.fake_quantize.scale for activation in inputs]).min()
    try:
        point.settle_weight(*prepared.sources[owner].tensors(prepared.module), input_scale)
    except NonFiniteError as error:
        msg = f"weight of {owner!r}: {error}"
        raise NonFiniteError(msg) from error
