"""Settle: from what observers saw to the scale and zero point of every activation and weight."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from qtool.errors import NonFiniteError
from qtool.numerics.qparams import QParams, bias_scale_floor
from qtool.observers.registry import make_observer

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.passes.insert import Prepared
    from qtool.passes.points import WeightPoint
    from qtool.plan import EdgePlan, NodePlan, Plan


@torch.no_grad()
def settle(prepared: Prepared, plan: Plan) -> None:
    """Set the parameters of every point whose observers saw data.

    Edges of one group get the parameters of their merged statistics, so cat and its inputs agree bit for bit.
    A weight is settled after its input, since its scale must leave room for the bias in units of both scales.
    """
    for members in _groups(plan).values():
        points = [prepared.activations[edge.name] for edge in members]
        if not all(point.is_calibrated for point in points):
            continue
        first, *others = (point.observer for point in points)
        qparams = first.merged(others).qparams(members[0].spec)
        for point in points:
            point.fake_quantize.set_qparams(qparams)
    for weight, nodes in _weight_users(prepared, plan):
        _settle_weight(prepared, weight, nodes)


def _groups(plan: Plan) -> dict[str, list[EdgePlan]]:
    groups: defaultdict[str, list[EdgePlan]] = defaultdict(list)
    for edge in plan.edges:
        groups[edge.group].append(edge)
    return groups


def _weight_users(prepared: Prepared, plan: Plan) -> list[tuple[WeightPoint, list[NodePlan]]]:
    users: dict[int, tuple[WeightPoint, list[NodePlan]]] = {}
    for node in plan.nodes:
        point = prepared.weights.get(node.name)
        if point is not None:
            users.setdefault(id(point), (point, []))[1].append(node)
    return list(users.values())


def _settle_weight(prepared: Prepared, point: WeightPoint, nodes: list[NodePlan]) -> None:
    inputs = [prepared.activations[node.inputs[0]] for node in nodes]
    if not all(activation.is_calibrated for activation in inputs):
        return
    spec = nodes[0].weight
    assert spec is not None
    observer = make_observer(spec.observer, axis=spec.axis, is_weight=True)
    try:
        observer.update(point.weight)
    except NonFiniteError as error:
        msg = f"weight of {nodes[0].name!r}: {error}"
        raise NonFiniteError(msg) from error
    scale, zero_point = observer.qparams(spec)
    if point.bias is not None:
        for activation in inputs:
            scale = _with_room_for_bias(scale, point.bias, activation.fake_quantize.scale)
    point.fake_quantize.set_qparams(QParams(scale, zero_point))
    point.is_calibrated = True


def _with_room_for_bias(scale: Tensor, bias: Tensor, input_scale: Tensor) -> Tensor:
    floor = bias_scale_floor(bias, input_scale)
    return torch.maximum(scale, floor if scale.dim() else floor.max())
