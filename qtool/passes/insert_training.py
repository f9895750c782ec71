"""Insert into the training graph: the points of the eval graph, gathered with the ops around them into single steps.

y = relu(batch_norm(conv(x, w, b)))       before
y = L(T(x), w, b, batch norm)             after: T is a TrainingPoint; L a TrainingLayer, which knows its points

What lies on a grid flows as `Coded` from there on (carry_codes.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch.fx import Node

from qtool.errors import UsageError
from qtool.numerics.grid import NO_BOUNDS, Bounds
from qtool.passes.batch_norm_point import BatchNormPoint
from qtool.passes.carry_codes import carry_codes
from qtool.passes.insert import EPS, Prepared, add_point, finish, insert_activations, multiplying_nodes
from qtool.passes.naming import node_names
from qtool.passes.ops import argument, clamp_bounds, is_floating
from qtool.passes.points import ActivationPoint
from qtool.passes.training_layer import LayerPoints, TrainingLayer, product_of
from qtool.passes.training_point import TrainingPoint
from qtool.types import Op

if TYPE_CHECKING:
    from torch import nn
    from torch.fx import GraphModule
    from torch.fx.node import Argument

    from qtool.plan import NodePlan, Plan

aten = torch.ops.aten

BATCH_NORMS = "qtool/batch_norms"
LAYERS = "qtool/layers"
POINTS = "qtool/points"
COUNTER = "num_batches_tracked"

MOVING = frozenset({Op.LAYOUT, Op.MAX_POOL, Op.CAT})
"""Ops whose results are values of their inputs, on the same grid already: training needs no point behind them.

With one, a dropout before a flatten would show the observer values that the deployed model never has.
"""

FUSED_ACTIVATIONS = frozenset({aten.relu.default, aten.relu6.default, aten.hardtanh.default})
"""Activations whose gradient stops at the bounds themselves; that of clamp passes there."""

ON_GRID = frozenset({None, "relu"})
"""Activations that leave values on the grid: it always holds 0, but not every other bound."""


def insert_training(
    module: GraphModule, plan: Plan, nodes: dict[str, Node], prepared: Prepared
) -> tuple[dict[str, ActivationPoint], list[BatchNormPoint]]:
    """Edit a fresh training graph so that it trains what the plan says; `module` is used up.

    Args:
        module: what `FloatProgram.training_graph_module()` gave.
        plan: the plan of the eval graph; every int8 node has a twin.
        nodes: the twin of each node of the eval graph, by name, as `twins` gives it.
        prepared: the eval graph's points, which both graphs share.

    Returns:
        The points of the edges that are observed in train mode, and all batch norms.
    """
    moved = {node.output for node in plan.int8_nodes() if node.op in MOVING and node.activation in ON_GRID}
    observed = {name: point for name, point in prepared.activations.items() if name not in moved}
    insert_activations(module, plan, nodes, observed)
    batch_norms = _insert_batch_norms(module)
    for node_plan in multiplying_nodes(plan):
        _insert_layer(module, node_plan, nodes[node_plan.members[0]], prepared)
    _insert_training_points(module)
    carry_codes(module)
    finish(module)
    return observed, batch_norms


# --- batch norms


def _insert_batch_norms(module: GraphModule) -> list[BatchNormPoint]:
    """Put a point in the place of every batch norm with running statistics, and return the points."""
    names = node_names(module.graph)
    points = []
    counters: dict[str, Node] = {}
    for node in list(module.graph.nodes):
        if node.target is not aten.batch_norm.default or node.args[3] is None:
            continue
        point = BatchNormPoint(names[node], momentum=node.args[6], eps=node.args[EPS], learns=bool(node.args[5]))
        path = add_point(module, BATCH_NORMS, names[node], point)
        with module.graph.inserting_before(node):
            counter = _counter(module, node.args[3], counters)
            made = module.graph.call_module(path, (*node.args[:5], counter))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        points.append(point)
        node.graph.erase_node(node)
    _erase_counting(module, {str(counter.target) for counter in counters.values()})
    return points


def _counter(module: GraphModule, mean: Node, known: dict[str, Node]) -> Node | None:
    """Return a node for the counter beside a running mean, if there is one."""
    owner, _, _ = str(mean.target).rpartition(".")
    path = f"{owner}.{COUNTER}" if owner else COUNTER
    if mean.op != "get_attr" or not hasattr(module.get_submodule(owner), COUNTER):
        return None
    known[path] = module.graph.get_attr(path)
    return known[path]


def _erase_counting(module: GraphModule, counted: set[str]) -> None:
    """Erase the ops that count batches: the points do."""
    for node in reversed(list(module.graph.nodes)):
        if node.target is aten.add_.Tensor and not node.users and _counter_path(node) in counted:
            module.graph.erase_node(node)


def _counter_path(node: object) -> str:
    """Return what an `add_` writes to; that of a second call reads the result of the first."""
    while isinstance(node, Node) and node.target is aten.add_.Tensor:
        node = node.args[0]
    return str(node.target) if isinstance(node, Node) and node.op == "get_attr" else ""


# --- layers


def _insert_layer(module: GraphModule, node_plan: NodePlan, node: Node, prepared: Prepared) -> None:
    """Put a TrainingLayer in the place of a product, and of what follows it alone: batch norm, activation, point."""
    chain, batch_norm, bounds, point = [node], None, NO_BOUNDS, None
    statistics: tuple[Argument, ...] = ()
    follower = _follower(node)
    if isinstance(found := _module_of(module, follower), BatchNormPoint) and follower is not None:
        chain.append(follower)
        batch_norm, statistics = found, follower.args[1:]
        follower = _follower(follower)
    weight_point = prepared.weights[node_plan.name]
    if batch_norm is None and weight_point.folds_in_training:
        msg = (
            f"{node_plan.name!r}: train mode does something between the layer and its batch norm, so a weight with one "
            f"scale for both cannot be trained; set granularity: channel, or keep the layer float"
        )
        raise UsageError(msg)
    if follower is not None and follower.target in FUSED_ACTIVATIONS:
        chain.append(follower)
        bounds = _bounds(follower)
        follower = _follower(follower)
    if isinstance(found := _module_of(module, follower), ActivationPoint) and follower is not None:
        chain.append(follower)
        point = found
    layer = TrainingLayer(product_of(node), bounds, LayerPoints(weight_point, batch_norm, point))
    path = add_point(module, LAYERS, node_plan.name, layer)
    with module.graph.inserting_after(chain[-1]):
        made = module.graph.call_module(path, (node.args[0], node.args[1], argument(node, 2, "bias"), *statistics))
    _replace(chain, made)


def _insert_training_points(module: GraphModule) -> None:
    """Put a TrainingPoint in the place of every point that no layer took, and of the activation and sum before it."""
    for node in list(module.graph.nodes):
        point = _module_of(module, node)
        if not isinstance(point, ActivationPoint):
            continue
        chain, bounds, operands = [node], NO_BOUNDS, node.args
        if _is_alone(source := operands[0]) and source.target in FUSED_ACTIVATIONS:
            chain.insert(0, source)
            bounds, operands = _bounds(source), source.args[:1]
        if _is_alone(source := operands[0]) and source.target is aten.add.Tensor and _is_plain_sum(source):
            chain.insert(0, source)
            operands = source.args[:2]
        path = add_point(module, POINTS, point.edge, TrainingPoint(point, bounds))
        with module.graph.inserting_after(node):
            made = module.graph.call_module(path, operands)
        _replace(chain, made)


def _replace(chain: list[Node], made: Node) -> None:
    """Let readers of the last node of a chain read `made`, and erase the chain."""
    made.meta = dict(chain[-1].meta)
    chain[-1].replace_all_uses_with(made)
    for node in reversed(chain):
        node.graph.erase_node(node)


def _follower(node: Node) -> Node | None:
    """Return the only node that reads this one, if it reads it once, as its first argument."""
    if len(node.users) != 1:
        return None
    (user,) = node.users
    is_first = bool(user.args) and user.args[0] is node
    return user if is_first and user.all_input_nodes.count(node) == 1 else None


def _is_alone(node: object) -> TypeGuard[Node]:
    return isinstance(node, Node) and len(node.users) == 1


def _is_plain_sum(node: Node) -> bool:
    """Whether a sum is that of two float tensors."""
    operands = node.args[:2]
    is_scaled = argument(node, 2, "alpha", 1) != 1
    return not is_scaled and all(isinstance(operand, Node) and is_floating(operand) for operand in operands)


def _bounds(node: Node) -> Bounds:
    low, high = clamp_bounds(node)
    return Bounds(-inf if low is None else low, inf if high is None else high)


def _module_of(module: GraphModule, node: Node | None) -> nn.Module | None:
    return module.get_submodule(str(node.target)) if node is not None and node.op == "call_module" else None
