"""Insert: from the float graph and its plan to the prepared graph, with a point at every quantized edge.

y = relu(batch_norm(conv(x, w, b)))              before
y = P(relu(conv(P(x), *W(w, b, batch norm))))    after: P is an ActivationPoint, W a WeightPoint, which folds
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.fx import GraphModule, Node

from qtool.capture.computed_weights import constant_value
from qtool.passes.fold_batch_norm import BatchNormState
from qtool.passes.ops import argument
from qtool.passes.ops import value as value_of
from qtool.passes.points import ActivationPoint
from qtool.passes.weight_layout import WeightLayout
from qtool.passes.weight_point import WeightPoint
from qtool.types import MAC_OPS, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.plan import NodePlan, Plan

# With a slash, so that no attribute of a model bears the name.
ACTIVATIONS = "qtool/activations"
WEIGHTS = "qtool/weights"

EPS = 7
"""Where `aten.batch_norm` has its epsilon; its momentum stands before it."""


@dataclass(frozen=True)
class WeightSource:
    """Where the weight of one layer, its bias and batch norm come from: constants of the eval graph.

    Attributes:
        weight: node of the weight.
        bias: node of the bias, or None.
        batch_norm: nodes of gamma, beta, running mean and running variance, or None without batch norm.
        eps: of the batch norm.
    """

    weight: Node
    bias: Node | None
    batch_norm: tuple[Node | None, Node | None, Node, Node] | None = None
    eps: float | None = None

    @staticmethod
    def of(node: Node, batch_norm: Node | None) -> WeightSource:
        """Return where a layer and the batch norm after it have their constants."""
        weight: Any = node.args[1]
        bias = argument(node, 2, "bias")
        if batch_norm is None:
            return WeightSource(weight, bias)
        gamma, beta, mean, var = batch_norm.args[1:5]
        return WeightSource(weight, bias, (gamma, beta, mean, var), float(batch_norm.args[EPS]))  # type: ignore[arg-type]

    @property
    def nodes(self) -> tuple[Node | None, ...]:
        """What a WeightPoint is called with."""
        return (self.weight, self.bias, *(self.batch_norm or ()))

    @property
    def key(self) -> tuple[object, ...]:
        """Two calls of one layer have one key if everything that is folded is the same."""
        names = [node.target if isinstance(node, Node) and node.op == "get_attr" else node for node in self.nodes]
        return (self.eps, *names)

    def tensors(self, module: GraphModule) -> tuple[Tensor, Tensor | None, BatchNormState | None]:
        """Return weight, bias and batch norm as they are now."""
        found: list[Any] = [None if node is None else constant_value(module, node) for node in self.nodes]
        if self.eps is None:
            return found[0], found[1], None
        gamma, beta, mean, var = found[2:]
        return found[0], found[1], BatchNormState(gamma=gamma, beta=beta, mean=mean, var=var, eps=self.eps)


@dataclass(frozen=True)
class Prepared:
    """The prepared graph and its points.

    Attributes:
        module: the graph; its points are its submodules.
        activations: point of each edge, by edge name.
        weights: point of each weight, by node name; nodes that share a weight share the point.
        sources: where each weight comes from, by node name.
    """

    module: GraphModule
    activations: dict[str, ActivationPoint]
    weights: dict[str, WeightPoint]
    sources: dict[str, WeightSource]

    def distinct_weights(self) -> dict[str, WeightPoint]:
        """Return each weight's point once, by the name of the first node that has it."""
        owners: dict[int, str] = {}
        return {n: point for n, point in self.weights.items() if owners.setdefault(id(point), n) == n}


def insert(module: GraphModule, plan: Plan, *, is_trained: bool = False) -> Prepared:
    """Edit a fresh float graph into the prepared one; `module` is used up.

    Args:
        module: what `FloatProgram.graph_module()` gave.
        plan: a plan made for the same program.
        is_trained: the model is to be trained too.
    """
    nodes = {node.name: node for node in module.graph.nodes}
    activations = {edge.name: ActivationPoint(edge) for edge in plan.edges}
    # Activations first: a plan names the batch norms that folding takes out.
    insert_activations(module, plan, nodes, activations)
    weights, sources = _insert_weights(module, plan, nodes, is_trained=is_trained)
    finish(module)
    return Prepared(module, activations, weights, sources)


def finish(module: GraphModule) -> None:
    """Remove what nothing reads any more, check the graph, and make it callable."""
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()


def attribute_name(name: str) -> str:
    """Return a node's name as a module attribute: `features.0#2` is `features/0#2`.

    A dot would nest modules, and `block` would then hold both its own parts and the point of `block.add`.
    """
    return name.replace(".", "/")


def add_point(module: GraphModule, folder: str, name: str, point: nn.Module) -> str:
    """Put a point into the module, and return its path."""
    if folder not in module._modules:
        module.add_module(folder, nn.Module())
    module.get_submodule(folder).add_module(attribute_name(name), point)
    return f"{folder}.{attribute_name(name)}"


def multiplying_nodes(plan: Plan) -> Iterator[NodePlan]:
    """Yield the int8 nodes that have a weight."""
    return (node for node in plan.nodes if node.verdict is Verdict.INT8 and node.op in MAC_OPS)


# --- activations


def insert_activations(
    module: GraphModule, plan: Plan, nodes: dict[str, Node], points: dict[str, ActivationPoint]
) -> None:
    """Put a point behind every quantized edge.

    Args:
        module: the graph to edit.
        plan: which edges there are.
        nodes: the graph's node for each node that the plan names; what is missing gets no point.
        points: the point of each edge that is to get one.
    """
    int8_nodes = {nodes[member] for node in plan.int8_nodes() for member in node.members if member in nodes}
    for edge in plan.edges:
        if edge.name not in points:
            continue
        value = nodes[edge.value]
        target = add_point(module, ACTIVATIONS, edge.name, points[edge.name])
        readers = list(value.users)
        with module.graph.inserting_after(value):
            quantized = module.graph.call_module(target, (value,))
        quantized.meta = dict(value.meta)
        for reader in readers:
            # Codes of an int8 op are all there is of its result; a float value stays float for float readers.
            if value in int8_nodes or _leads_to(reader, int8_nodes, set(nodes.values())):
                reader.replace_input_with(value, quantized)


def _leads_to(reader: Node, int8_nodes: set[Node], known: set[Node]) -> bool:
    """Whether a reader is an int8 node, or hands on to one what the plan knows nothing of: a dropout in train mode."""
    if reader in int8_nodes:
        return True
    is_unknown = reader not in known and reader.op == "call_function"
    return is_unknown and any(_leads_to(further, int8_nodes, known) for further in reader.users)


# --- weights


def _insert_weights(
    module: GraphModule, plan: Plan, nodes: dict[str, Node], *, is_trained: bool
) -> tuple[dict[str, WeightPoint], dict[str, WeightSource]]:
    points: dict[str, WeightPoint] = {}
    sources: dict[str, WeightSource] = {}
    owners: dict[tuple[object, ...], str] = {}
    for node_plan in multiplying_nodes(plan):
        node, batch_norm = layer_of(node_plan, nodes)
        source = sources[node_plan.name] = WeightSource.of(node, batch_norm)
        owner = owners.setdefault((node_plan.weight, *source.key), node_plan.name)
        if owner == node_plan.name:
            points[owner] = _weight_point(node_plan, node, source, is_trained=is_trained)
        points[node_plan.name] = points[owner]
        target = add_point(module, WEIGHTS, owner, points[owner])
        _use_weight_point(module, node, batch_norm, source, target)
    return points, sources


def layer_of(node_plan: NodePlan, nodes: dict[str, Node]) -> tuple[Node, Node | None]:
    """Return a plan's convolution or linear node, and the batch norm that is folded into it."""
    return nodes[node_plan.members[0]], nodes[node_plan.members[1]] if node_plan.batch_norm else None


def _weight_point(node_plan: NodePlan, node: Node, source: WeightSource, *, is_trained: bool) -> WeightPoint:
    assert node_plan.weight is not None
    shape = value_of(source.weight).shape
    return WeightPoint(node_plan.weight, WeightLayout.of(node), shape, eps=source.eps, is_trained=is_trained)


def _use_weight_point(
    module: GraphModule, node: Node, batch_norm: Node | None, source: WeightSource, target: str
) -> None:
    """Let the op read weight and bias from the point, and take the batch norm out."""
    graph = module.graph
    has_bias = source.bias is not None or batch_norm is not None
    with graph.inserting_before(node):
        folded = graph.call_module(target, source.nodes)
        weight = graph.call_function(operator.getitem, (folded, 0))
        bias = graph.call_function(operator.getitem, (folded, 1)) if has_bias else None
    weight.meta = dict(source.weight.meta)
    node.args = (node.args[0], weight, bias, *node.args[3:])
    node.kwargs = {key: given for key, given in node.kwargs.items() if key not in ("weight", "bias")}
    if batch_norm is not None:
        batch_norm.replace_all_uses_with(node)
        graph.erase_node(batch_norm)
