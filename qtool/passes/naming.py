"""Names for people: which module, and which op of it, a graph node stands for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from qtool.capture.functional import INPUT_NAME

if TYPE_CHECKING:
    from torch import fx
    from torch.fx import Node

MODULE_OPS = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "linear", "batch_norm"})
"""Ops that give a module its name even where it also pads or flattens: a padded convolution is a convolution."""


def node_names(graph: fx.Graph) -> dict[Node, str]:
    """Return a unique name for each input and each op of the graph, in order.

    The name is the path of the module the op was called in. Where one call of a module has several ops, the op's
    name follows (`block.add`), except for the one convolution, linear or batch norm in it. A name that is taken
    gets `#2`, `#3` ...: the second call of a module, or the second such op of it.

    Example:
        `conv1`, `layer1.0.conv1`, `layer1.0.add`, `conv#2` (the module `conv` called again), `add#2`.
    """
    ops = [node for node in graph.nodes if node.op == "call_function"]
    calls = Counter(call_of(node) for node in ops)
    named_ops = Counter(call_of(node) for node in ops if op_name(node) in MODULE_OPS)
    names: dict[Node, str] = {}
    taken: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op == "placeholder":
            name = node.meta[INPUT_NAME]
        elif node.op == "call_function":
            name = _base_name(node, calls[call_of(node)], named_ops[call_of(node)])
        else:
            continue
        taken[name] += 1
        names[node] = name if taken[name] == 1 else f"{name}#{taken[name]}"
    return names


def op_name(node: Node) -> str:
    """Return the op's bare name: `conv2d` for `aten.conv2d.default`, `getitem` for the operator."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.partition("::")[2] if schema else getattr(node.target, "__name__", str(node.target))


def module_path(node: Node) -> str:
    """Return the path of the innermost module the node was called in; empty for the model itself."""
    return _innermost(node)[1]


def _base_name(node: Node, num_ops: int, num_named: int) -> str:
    path = module_path(node)
    if not path:
        return op_name(node)
    is_named = op_name(node) in MODULE_OPS
    if num_ops == 1 or (is_named and num_named == 1):
        return path
    return f"{path}.{op_name(node)}"


def call_of(node: Node) -> str:
    """Return the key of the innermost call of a module that the node belongs to; a second call has another key."""
    return _innermost(node)[0]


def _innermost(node: Node) -> tuple[str, str]:
    """Return (key of the call, module path); a module called twice has two keys and one path."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    key, (path, _) = list(stack.items())[-1]
    return key, path
