"""Weights that are computed from parameters alone, as weight_norm does: computed once, here.

conv(x, g * v / norm(v))        before
conv(x, w)                      after: w is a tensor of the module
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node, map_arg

from qtool.capture.writes import written_argument, written_tensors

if TYPE_CHECKING:
    from torch import fx
    from torch.fx import GraphModule

aten = torch.ops.aten

WEIGHTED = frozenset(
    {
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv3d.default,
        aten.conv_transpose1d.default,
        aten.conv_transpose2d.input,
        aten.linear.default,
    }
)
"""Ops whose second and third argument are a weight and a bias."""


@torch.no_grad()
def fold_computed_weights(module: GraphModule) -> None:
    """Edit the module so that weights and biases which depend on no input are tensors of it."""
    constants = _constants(module.graph)
    folded: dict[Node, Node] = {}
    for node in list(module.graph.nodes):
        if node.target not in WEIGHTED:
            continue
        for argument in node.args[1:3]:
            if isinstance(argument, Node) and argument.op == "call_function" and argument in constants:
                if argument not in folded:
                    folded[argument] = _stored(module, argument)
                node.replace_input_with(argument, folded[argument])
    module.graph.eliminate_dead_code()


def _constants(graph: fx.Graph) -> set[Node]:
    """Return the values that are the same at each call: made of parameters by ops that neither write nor draw."""
    written = written_tensors(graph.nodes)
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            is_constant = node.target not in written
        else:
            is_constant = node.op == "call_function" and _is_pure(node) and found.issuperset(node.all_input_nodes)
        if is_constant:
            found.add(node)
    return found


def _is_pure(node: Node) -> bool:
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return not is_random and written_argument(node) is None


def _stored(module: GraphModule, node: Node) -> Node:
    name = "computed_weight"
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, constant_value(module, node).contiguous())
    with module.graph.inserting_before(node):
        made = module.graph.get_attr(name)
    made.meta = dict(node.meta)
    return made


def constant_value(module: GraphModule, node: Node) -> Any:  # noqa: ANN401 - a tensor, or a list of them
    """Return the value of a node that depends on no input: a tensor of the module, or what is computed from some."""
    return _value(module, node, {})


def _value(module: GraphModule, node: Node, known: dict[Node, Any]) -> Any:  # noqa: ANN401 - a tensor, or a list of them
    if node not in known:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            known[node] = getattr(module.get_submodule(owner), name)
        else:
            args, kwargs = map_arg((node.args, node.kwargs), lambda source: _value(module, source, known))
            known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return known[node]
