"""Learned scales: which points learn a scale, and which learn one together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qtool.numerics.module import FakeQuantize
from qtool.passes.settle import edges_by_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from qtool.passes.insert import Prepared
    from qtool.plan import Plan


def learn_scales(prepared: Prepared, plan: Plan, learned: bool) -> None:
    """Let all scales be parameters, or no longer; those that follow from their op stay what they are.

    Edges of one group have one parameter, as they have one scale.
    """
    for members in edges_by_group(plan).values():
        first, *others = (prepared.activations[edge.name].fake_quantize for edge in members)
        if first.spec.fixed is not None:
            continue
        first.learn_scale(learned)
        for other in others:
            if learned:
                other.share_learned_scale(first)
            else:
                other.learn_scale(False)
    for point in prepared.distinct_weights().values():
        point.fake_quantize.learn_scale(learned)


@torch.no_grad()
def refresh_scales(prepared: Prepared, plan: Plan) -> None:
    """Bring all scales up to date with their parameters, and what weights know of the scales of their inputs."""
    modules = [point.fake_quantize for point in prepared.activations.values()]
    if not any(module.learns for module in modules):
        return
    for module in (*modules, *(point.fake_quantize for point in prepared.distinct_weights().values())):
        module.refresh_scale()
    found: dict[str, list[torch.Tensor]] = {}
    owners = {id(point): name for name, point in prepared.distinct_weights().items()}
    for node in plan.nodes:
        if node.name in prepared.weights:
            scale = prepared.activations[node.inputs[0]].fake_quantize.scale
            found.setdefault(owners[id(prepared.weights[node.name])], []).append(scale)
    for name, scales in found.items():
        prepared.weights[name].input_scale.copy_(torch.stack(scales).min())


def scale_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameter of each learned scale of a model once."""
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, FakeQuantize) and module.shift is not None and id(module.shift) not in seen:
            seen.add(id(module.shift))
            yield module.shift
