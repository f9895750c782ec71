"""Insert: from the float graph and its plan to the prepared graph, with a point at every quantized edge.

y = relu(batch_norm(conv(x, w)))       before
y = P(relu(conv(P(x), W())))           after: P is an ActivationPoint, W a WeightPoint with the batch norm folded
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.fx import GraphModule, Node

from qtool.passes.fold_batch_norm import fold_batch_norm
from qtool.passes.match import Match, match_patterns
from qtool.passes.points import ActivationPoint, WeightPoint
from qtool.types import MAC_OPS, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.plan import NodePlan, Plan

# With a slash, so that no attribute of a model bears the name.
ACTIVATIONS = "qtool/activations"
WEIGHTS = "qtool/weights"


@dataclass(frozen=True)
class Prepared:
    """The prepared graph and its points.

    Attributes:
        module: the graph; its points are its submodules.
        activations: point of each edge, by edge name.
        weights: point of each weight, by node name; nodes that share a weight share the point.
    """

    module: GraphModule
    activations: dict[str, ActivationPoint]
    weights: dict[str, WeightPoint]


def insert(module: GraphModule, plan: Plan) -> Prepared:
    """Edit a fresh float graph into the prepared one; `module` is used up.

    Args:
        module: what `FloatProgram.graph_module()` gave.
        plan: a plan made for the same program.
    """
    nodes = {node.name: node for node in module.graph.nodes}
    matches = {match.node.name: match for match in match_patterns(module.graph)}
    module.add_module(ACTIVATIONS, nn.Module())
    module.add_module(WEIGHTS, nn.Module())
    # Activations first: a plan names the batch norms that folding takes out.
    activations = _insert_activations(module, plan, nodes)
    weights = _insert_weights(module, plan, matches)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.graph.lint()
    module.recompile()
    return Prepared(module, activations, weights)


def attribute_name(name: str) -> str:
    """Return a node's name as a module attribute: `features.0#2` is `features/0#2`.

    A dot would nest modules, and `block` would then hold both its own parts and the point of `block.add`.
    """
    return name.replace(".", "/")


def tensor_of(module: nn.Module, node: Any) -> Tensor | None:  # noqa: ANN401 - an argument of a node
    """Return the tensor that a `get_attr` node stands for; None for no node."""
    if not isinstance(node, Node):
        return None
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


# --- activations


def _insert_activations(module: GraphModule, plan: Plan, nodes: dict[str, Node]) -> dict[str, ActivationPoint]:
    int8_members = {member for node in plan.int8_nodes() for member in node.members}
    points = {}
    for edge in plan.edges:
        value = nodes[edge.value]
        point = points[edge.name] = ActivationPoint(edge)
        target = f"{ACTIVATIONS}.{attribute_name(edge.name)}"
        getattr(module, ACTIVATIONS).add_module(attribute_name(edge.name), point)
        readers = list(value.users)
        with module.graph.inserting_after(value):
            quantized = module.graph.call_module(target, (value,))
        quantized.meta = dict(value.meta)
        is_from_int8 = edge.value in int8_members
        for reader in readers:
            # Codes of an int8 op are all there is of its result; a float value stays float for float readers.
            if is_from_int8 or reader.name in int8_members:
                reader.replace_input_with(value, quantized)
    return points


# --- weights


def _insert_weights(module: GraphModule, plan: Plan, matches: dict[str, Match]) -> dict[str, WeightPoint]:
    points: dict[str, WeightPoint] = {}
    shared: dict[tuple[object, ...], str] = {}
    for node_plan in plan.nodes:
        if node_plan.verdict is not Verdict.INT8 or node_plan.op not in MAC_OPS:
            continue
        match = matches[node_plan.members[0]]
        owner = shared.setdefault(_weight_key(node_plan, match), node_plan.name)
        if owner == node_plan.name:
            points[owner] = _make_weight_point(module, node_plan, match)
            getattr(module, WEIGHTS).add_module(attribute_name(owner), points[owner])
        points[node_plan.name] = points[owner]
        _use_weight_point(module, match, f"{WEIGHTS}.{attribute_name(owner)}", has_bias=points[owner].bias is not None)
    return points


def _weight_key(node_plan: NodePlan, match: Match) -> tuple[object, ...]:
    """Two calls of one layer share the quantized weight if everything folded into it is the same."""
    constants = [*match.node.args[1:3], *(match.batch_norm.args[1:5] if match.batch_norm else ())]
    eps = match.batch_norm.args[7] if match.batch_norm else None
    return (node_plan.weight, eps, *(c.target if isinstance(c, Node) else None for c in constants))


def _make_weight_point(module: GraphModule, node_plan: NodePlan, match: Match) -> WeightPoint:
    weight = tensor_of(module, match.node.args[1])
    bias = tensor_of(module, match.node.args[2]) if len(match.node.args) > 2 else None
    assert weight is not None
    assert node_plan.weight is not None
    weight, layout = weight.detach(), match.layout
    if match.batch_norm is not None:
        gamma, beta, mean, var = (tensor_of(module, argument) for argument in match.batch_norm.args[1:5])
        assert mean is not None
        assert var is not None
        eps = float(match.batch_norm.args[7])  # type: ignore[arg-type]
        weight, bias = fold_batch_norm(weight, bias, gamma=gamma, beta=beta, mean=mean, var=var, eps=eps, layout=layout)
    return WeightPoint(node_plan.weight, weight, bias, layout)


def _use_weight_point(module: GraphModule, match: Match, target: str, *, has_bias: bool) -> None:
    """Let the op read weight and bias from the point, and take the batch norm out."""
    node = match.node
    with module.graph.inserting_before(node):
        weight = module.graph.call_module(target)
        bias = module.graph.get_attr(f"{target}.bias") if has_bias else None
    weight.meta = dict(node.args[1].meta)  # type: ignore[union-attr]
    rest = tuple(node.args[3:])
    node.args = (node.args[0], weight, bias, *rest)
    node.kwargs = {key: argument for key, argument in node.kwargs.items() if key not in ("weight", "bias")}
    if match.batch_norm is not None:
        match.batch_norm.replace_all_uses_with(node)
        module.graph.erase_node(match.batch_norm)
