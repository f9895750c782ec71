"""Insert into the training graph: the same points as in the eval graph, batch norms left where they are.

y = relu(batch_norm(conv(x, w, b)))           before
y = P(relu(B(conv(P(x), W(w), b), ...)))      after: B is a BatchNormPoint, W.training_weight

With one scale for a whole weight, what is deployed is the grid of the folded weight, so that one is quantized:

y = P(relu(B.corrected(conv(P(x), W(w, ...)), conv(P(x), w), ...)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from qtool.errors import UsageError
from qtool.passes.batch_norm_point import BatchNormPoint
from qtool.passes.insert import (
    EPS,
    WEIGHTS,
    Prepared,
    add_point,
    finish,
    insert_activations,
    multiplying_nodes,
)
from qtool.passes.naming import node_names
from qtool.passes.ops import argument
from qtool.types import Op

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from qtool.passes.points import ActivationPoint
    from qtool.plan import NodePlan, Plan

aten = torch.ops.aten

BATCH_NORMS = "qtool/batch_norms"
COUNTER = "num_batches_tracked"

MOVING = frozenset({Op.LAYOUT, Op.MAX_POOL, Op.CAT})
"""Ops whose results are values of their inputs, on the same grid already: training needs no point behind them.

With one, a dropout before a flatten would show the observer values that the deployed model never has.
"""

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
        batch_norm = batch_norms[nodes[node_plan.members[1]]] if node_plan.batch_norm else None
        _insert_weight(module, node_plan, nodes[node_plan.members[0]], batch_norm, prepared)
    finish(module)
    points = [module.get_submodule(str(node.target)) for node in batch_norms.values()]
    return observed, [point for point in points if isinstance(point, BatchNormPoint)]


# --- batch norms


def _insert_batch_norms(module: GraphModule) -> dict[Node, Node]:
    """Put a point in the place of every batch norm with running statistics; return its node by the one it was."""
    names = node_names(module.graph)
    calls = {}
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
        calls[node] = made
        node.graph.erase_node(node)
    _erase_counting(module, {str(counter.target) for counter in counters.values()})
    return calls


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


# --- weights


def _insert_weight(
    module: GraphModule, node_plan: NodePlan, node: Node, batch_norm: Node | None, prepared: Prepared
) -> None:
    point = prepared.weights[node_plan.name]
    owner = next(name for name, known in prepared.weights.items() if known is point)
    path = add_point(module, WEIGHTS, owner, point)
    with module.graph.inserting_before(node):
        self_node = module.graph.get_attr(path)
    if batch_norm is None or point.folds_codes:
        _quantize_weight(module, node, self_node)
    elif batch_norm.args[0] is node and len(node.users) == 1:
        _quantize_folded_weight(module, node, batch_norm, self_node)
    else:
        msg = (
            f"{node_plan.name!r}: train mode does something between the layer and its batch norm, so a weight with one "
            f"scale for both cannot be trained; set granularity: channel, or keep the layer float"
        )
        raise UsageError(msg)


def _quantize_weight(module: GraphModule, node: Node, point: Node) -> None:
    with module.graph.inserting_before(node):
        weight = module.graph.call_method("training_weight", (point, node.args[1]))
    node.args = (node.args[0], weight, *node.args[2:])


def _quantize_folded_weight(module: GraphModule, node: Node, batch_norm: Node, point: Node) -> None:
    """Compute the layer twice: with the folded weight on its grid, and as it is for the batch's statistics."""
    graph = module.graph
    gamma, beta, mean, var, counter = batch_norm.args[1:6]
    bias = argument(node, 2, "bias")
    with graph.inserting_before(node):
        weight = graph.call_method("training_folded_weight", (point, node.args[1], gamma))
        folded_var = graph.get_attr(f"{point.target}.folded_var")
        unfolded = graph.call_function(node.target, node.args, dict(node.kwargs))  # type: ignore[arg-type]
        self_node = graph.get_attr(str(batch_norm.target))
    node.args = (node.args[0], weight, None, *node.args[3:])
    with graph.inserting_before(batch_norm):
        arguments = (self_node, node, unfolded, bias, gamma, beta, mean, var, counter, folded_var)
        made = graph.call_method("corrected", arguments)
    made.meta = dict(batch_norm.meta)
    batch_norm.replace_all_uses_with(made)
    graph.erase_node(batch_norm)
