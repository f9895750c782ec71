"""To reference: from the float graph, the plan and the settled parameters to the int8 reference graph.

    y = relu(batch_norm(conv(x, w)))                                before
    y = dq(q(relu(conv(dq(q(x)), dq(w_int8), folded_bias))))        after

q and dq are the ops of `qdq_ops.py`; weights are int8 buffers, biases float32. The reference program is what a
converted file holds: every engine and exporter starts from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from qtool.capture.program import tensor_of
from qtool.passes import qdq_ops
from qtool.passes.match import Match, match_patterns
from qtool.types import MAC_OPS, Granularity, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.numerics.qparams import QParams
    from qtool.passes.weight_layout import WeightLayout
    from qtool.plan import NodePlan, Plan
    from qtool.types import Spec

NODE_STAMP = "qtool"
"""Key in a node's meta, and in `node.meta["custom"]` of a saved program: what the node says of itself.

`{"edge": name}` on the quantize and dequantize of an edge; `{"node": name, "backend": "fbgemm,x86", "reduce_range":
...}` on the ops of an int8 node.
"""


@dataclass(frozen=True, kw_only=True)
class QuantizedWeight:
    """An int8 weight of the reference program.

    Attributes:
        owner: name of the node that the stored weight is named for; nodes that share it name the same owner.
        codes: int8.
        qparams: scale and zero point, `()` or `(O,)`.
        bias: float32 (O,) or None.
        layout: where the output channels of the codes lie.
    """

    owner: str
    codes: Tensor
    qparams: QParams
    bias: Tensor | None
    layout: WeightLayout


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Everything calibration or training found: by edge name, and by node name."""

    activations: Mapping[str, QParams]
    weights: Mapping[str, QuantizedWeight]


def to_reference(module: GraphModule, plan: Plan, parameters: Parameters) -> GraphModule:
    """Return the reference module; `module`, a fresh float graph module, is used up.

    The result holds only what it uses: int8 weights, folded biases, and the float parameters of what stays float.
    """
    graph = module.graph
    nodes = {node.name: node for node in graph.nodes}
    matches = {match.node.name: match for match in match_patterns(graph)}
    root = nn.Module()
    paths = _weight_paths(graph, parameters)
    _stamp_int8_nodes(plan, nodes)
    # Activations first: a plan names the batch norms that folding takes out.
    _quantize_activations(graph, plan, nodes, parameters)
    for node_plan in plan.nodes:
        if node_plan.verdict is Verdict.INT8 and node_plan.op in MAC_OPS:
            weight, match = parameters.weights[node_plan.name], matches[node_plan.members[0]]
            dequantized = _quantize_weight(graph, root, node_plan, match, weight, paths[weight.owner])
            dequantized.meta[NODE_STAMP] = _node_stamp(plan, node_plan)
    _erase_unused(graph)
    _keep_float_parameters(module, root)
    reference = GraphModule(root, graph)
    reference.graph.lint()
    return reference.eval()


def _stamp_int8_nodes(plan: Plan, nodes: Mapping[str, Node]) -> None:
    for node_plan in plan.int8_nodes():
        for member in node_plan.members:
            nodes[member].meta[NODE_STAMP] = _node_stamp(plan, node_plan)


def _node_stamp(plan: Plan, node_plan: NodePlan) -> dict[str, Any]:
    return {"node": node_plan.name, "backend": ",".join(plan.backends), "reduce_range": node_plan.reduce_range}


# --- weights


def _quantize_weight(
    graph: torch.fx.Graph, root: nn.Module, node_plan: NodePlan, match: Match, weight: QuantizedWeight, path: str
) -> Node:
    assert node_plan.weight is not None
    _store(root, f"{path}.weight", weight.codes)
    with graph.inserting_before(match.node):
        codes = _tensor_node(graph, f"{path}.weight")
        dequantized = _dequantize_weight(graph, root, path, codes, node_plan.weight, weight.qparams)
        bias = None
        if weight.bias is not None:
            _store(root, f"{path}.bias", weight.bias)
            bias = _tensor_node(graph, f"{path}.bias")
    match.node.args = (match.node.args[0], dequantized, bias, *match.node.args[3:])
    if match.batch_norm is not None:
        match.batch_norm.replace_all_uses_with(match.node)
        graph.erase_node(match.batch_norm)
    return dequantized


def _weight_paths(graph: torch.fx.Graph, parameters: Parameters) -> dict[str, str]:
    """Return where each int8 weight is stored, by owner: below its layer's name, and apart from all float tensors."""
    taken = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    paths: dict[str, str] = {}
    for owner in dict.fromkeys(weight.owner for weight in parameters.weights.values()):
        path = f"{owner.replace('#', '__')}.int8"
        while any(f"{other}.".startswith(f"{path}.") for other in taken):
            path += "_"
        taken.append(path)
        paths[owner] = path
    return paths


def _dequantize_weight(
    graph: torch.fx.Graph, root: nn.Module, path: str, codes: Node, spec: Spec, qparams: QParams
) -> Node:
    dtype = qdq_ops.TORCH_DTYPES[spec.dtype]
    if spec.granularity is Granularity.TENSOR:
        scale, zero_point = float(qparams.scale), int(qparams.zero_point)
        arguments: tuple[Any, ...] = (codes, scale, zero_point, spec.qmin, spec.qmax, dtype)
        return graph.call_function(qdq_ops.dequantize_per_tensor, arguments)
    _store(root, f"{path}.scale", qparams.scale)
    _store(root, f"{path}.zero_point", qparams.zero_point)
    scale_node, zero_point_node = _tensor_node(graph, f"{path}.scale"), _tensor_node(graph, f"{path}.zero_point")
    arguments = (codes, scale_node, zero_point_node, spec.axis, spec.qmin, spec.qmax, dtype)
    return graph.call_function(qdq_ops.dequantize_per_channel, arguments)


def _tensor_node(graph: torch.fx.Graph, path: str) -> Node:
    """Append a node for a stored tensor; `graph.get_attr` would look for it in the float module."""
    return graph.create_node("get_attr", path)


# --- activations


def _quantize_activations(graph: torch.fx.Graph, plan: Plan, nodes: Mapping[str, Node], parameters: Parameters) -> None:
    int8_members = {member for node in plan.int8_nodes() for member in node.members}
    for edge in plan.edges:
        value = nodes[edge.value]
        qparams, spec = parameters.activations[edge.name], edge.spec
        readers = list(value.users)
        grid = (float(qparams.scale), int(qparams.zero_point), spec.qmin, spec.qmax, qdq_ops.TORCH_DTYPES[spec.dtype])
        with graph.inserting_after(value):
            codes = graph.call_function(qdq_ops.quantize_per_tensor, (value, *grid))
        with graph.inserting_after(codes):
            dequantized = graph.call_function(qdq_ops.dequantize_per_tensor, (codes, *grid))
        for made in (codes, dequantized):
            made.meta[NODE_STAMP] = {"edge": edge.name}
        is_from_int8 = edge.value in int8_members
        for reader in readers:
            if is_from_int8 or reader.name in int8_members:
                reader.replace_input_with(value, dequantized)


# --- what the program holds


def _erase_unused(graph: torch.fx.Graph) -> None:
    """Erase what nothing reads any more; the graph's own sweep would look for our tensors in the float module."""
    for node in reversed(graph.nodes):
        if node.op in ("get_attr", "call_function") and not node.users and not node.is_impure():
            graph.erase_node(node)


def _keep_float_parameters(module: GraphModule, root: nn.Module) -> None:
    """Store what the float parts of the graph still read."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and not _has(root, str(node.target)):
            tensor = tensor_of(module, node)
            assert tensor is not None
            _store(root, str(node.target), tensor.detach())


def _has(root: nn.Module, path: str) -> bool:
    found: Any = root
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def _store(root: nn.Module, path: str, tensor: Tensor) -> None:
    *parents, name = path.split(".")
    module = root
    for part in parents:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    if not hasattr(module, name):
        module.register_buffer(name, tensor.detach().clone().contiguous())
