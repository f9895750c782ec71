"""Carry codes: let every op of the training graph that can pass codes on, or keep them for backward, do so.

y = flatten(C); z = silu(C); w = sin(C)                       before; C is Coded
y = moved(flatten, C); z = kept_as_codes(silu, C); w = sin(C.values)   after; y is Coded, z and w are tensors
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch.fx import Node, map_arg

from qtool.numerics.coded import values_of
from qtool.numerics.grid import NO_BOUNDS
from qtool.numerics.input_keeping import SAVES_INPUT
from qtool.numerics.kept_as_codes import kept_as_codes
from qtool.numerics.max_pool import NUM_DIMS as MAX_POOLS
from qtool.numerics.max_pool import max_pool
from qtool.numerics.moved import MOVES, moved
from qtool.passes.insert import add_point
from qtool.passes.ops import PATTERNS, argument
from qtool.passes.training_layer import LayerPoints, TrainingLayer, product_of
from qtool.passes.training_point import TrainingPoint
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from torch.fx import GraphModule


FLOAT_LAYERS = "qtool/float_layers"
"""Apart from the layers of the plan: those bear names of the model, these of graph nodes, which may be the same."""

_PRODUCTS = frozenset(target for target, op in PATTERNS.items() if op in MAC_OPS)


def carry_codes(module: GraphModule) -> None:
    """Edit the training graph after its layers and points are in place."""
    coded: set[Node] = set()
    values: dict[Node, Node] = {}
    for node in list(module.graph.nodes):
        if _takes_codes(module, node):
            coded.add(node)
        elif coded.intersection(node.all_input_nodes):
            _read_codes(module, node, coded, values)


def _takes_codes(module: GraphModule, node: Node) -> bool:
    if node.op != "call_module":
        return False
    return isinstance(module.get_submodule(str(node.target)), TrainingLayer | TrainingPoint)


def _read_codes(module: GraphModule, node: Node, coded: set[Node], values: dict[Node, Node]) -> None:
    """Edit one op that reads something coded."""
    if node.op == "call_function" and node.target is operator.getitem:
        node.target = _piece
        coded.add(node)
    elif node.op == "call_function" and node.target in _PRODUCTS and node.args[1] not in coded:
        coded.add(_layer_in_float(module, node))
    elif node.op == "call_function" and node.target in MOVES:
        _call(node, moved)
        coded.add(node)
    elif node.op == "call_function" and node.target in MAX_POOLS:
        _call(node, max_pool)
        coded.add(node)
    elif node.op == "call_function" and node.target in SAVES_INPUT:
        _call(node, kept_as_codes)
    else:
        _read_values(module, node, coded, values)


def _call(node: Node, function: Any) -> None:  # noqa: ANN401 - a function of an op and its arguments
    op: Any = node.target
    node.args = (op, *node.args)
    node.target = function


def _layer_in_float(module: GraphModule, node: Node) -> Node:
    """Put a layer in the place of a product that stays float, so that it keeps the codes of its input."""
    layer = TrainingLayer(product_of(node), NO_BOUNDS, LayerPoints(weight=None, batch_norm=None, activation=None))
    path = add_point(module, FLOAT_LAYERS, node.name, layer)
    with module.graph.inserting_after(node):
        made = module.graph.call_module(path, (*node.args[:2], argument(node, 2, "bias")))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)
    return made


def _piece(pieces: Any, index: int) -> Any:  # noqa: ANN401 - Coded, of a list of them
    # No graph can hold a function of Python's own among its arguments.
    return moved(operator.getitem, pieces, index)


def _read_values(module: GraphModule, node: Node, coded: set[Node], values: dict[Node, Node]) -> None:
    def value_node(argument: Node) -> Node:
        if argument not in coded:
            return argument
        if argument not in values:
            with module.graph.inserting_after(argument):
                values[argument] = module.graph.call_function(values_of, (argument,))
            values[argument].meta = dict(argument.meta)
        return values[argument]

    node.args = map_arg(node.args, value_node)
    node.kwargs = map_arg(node.kwargs, value_node)
