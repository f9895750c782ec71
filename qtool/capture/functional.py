"""From the captured graph to a functional one: no op writes into its argument, and no-ops of eval mode are gone.

    y = conv(x); z = relu_(y); o = add_(conv(z), y)      y is overwritten by relu_
    y = conv(x); z = relu(y);  o = add(conv(z), z)       the same values, said without writing

The graph is rebuilt node by node. Every value belongs to a storage, known by the value that created it (its
root); views of a root share it. A write gives the root a new version; who reads the root or one of its views later
reads the new version. Names of nodes are derived from the ops again, so both spellings give the same graph.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx import GraphModule, Node

from qtool.capture.view_inverse import write_through
from qtool.capture.writes import viewed_argument, written_argument
from qtool.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten

INPUT_NAME = "qtool_input"
"""Key in a placeholder's meta: what people call the input."""

EMPTY = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.new_empty.default,
    }
)
"""Ops that make a tensor without values."""

DROPOUTS = frozenset(
    {
        aten.dropout.default,
        aten.dropout_.default,
        aten.feature_dropout.default,
        aten.feature_dropout_.default,
        aten.alpha_dropout.default,
        aten.alpha_dropout_.default,
        aten.feature_alpha_dropout.default,
        aten.feature_alpha_dropout_.default,
    }
)


@dataclass
class _View:
    """One view of a storage: the old node that makes it and the old node it is taken from."""

    node: Node
    base: Node


@dataclass
class _Rebuild:
    """State of one rebuild: old nodes on the left, new nodes on the right."""

    graph: fx.Graph
    values: dict[Node, Node] = field(default_factory=dict)
    views: dict[Node, _View] = field(default_factory=dict)
    version: dict[Node, int] = field(default_factory=dict)  # root -> number of writes so far
    seen: dict[Node, int] = field(default_factory=dict)  # value -> version of its root it stands for

    def root(self, node: Node) -> Node:
        while node in self.views:
            node = self.views[node].base
        return node

    def current(self, node: Node) -> Node:
        """Return the new node that holds the old node's value as of now, taking views of it again if need be."""
        root = self.root(node)
        if self.seen.get(node, 0) == self.version.get(root, 0):
            return self.values[node]
        view = self.views[node]
        self.current(view.base)
        self.store(node, self.emit(view.node))
        return self.values[node]

    def store(self, node: Node, value: Node) -> None:
        self.values[node] = value
        self.seen[node] = self.version.get(self.root(node), 0)

    def emit(self, node: Node, target: Any = None) -> Node:  # noqa: ANN401 - fx targets are anything callable
        """Append the old node to the new graph, reading current values."""
        args = fx.map_arg(node.args, self.current)
        kwargs = fx.map_arg(node.kwargs, self.current)
        target = target or node.target
        name = None if node.op == "call_function" else node.name
        made = self.graph.create_node(node.op, target, args, kwargs, name=name, type_expr=node.type)
        made.meta = dict(node.meta)
        return made


def functional_graph(module: GraphModule, input_names: Sequence[str] = ()) -> GraphModule:
    """Return a module with the same parameters whose graph is functional, see the module's docstring.

    Args:
        module: the captured module.
        input_names: what people call the tensors among the inputs, in order; stands in the placeholders' meta, since
            a name of Python's (`self`, `class`, `image 1`) cannot stand in generated code.

    Raises:
        CaptureError: an op writes in a way that has no functional form; the message names it.
    """
    state = _Rebuild(fx.Graph())
    names = iter(input_names)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            made = state.emit(node)
            made.meta[INPUT_NAME] = (next(names, "") if is_tensor else "") or str(node.target)
            state.store(node, made)
        elif node.op == "get_attr" and not node.users:
            continue  # counters of batch norms and the like: nothing reads them in eval mode
        elif _is_eval_dropout(node):
            _alias(state, node, node.args[0])
        elif written_argument(node) is None:
            _copy(state, node)
        else:
            _write(state, node)
    state.graph.set_codegen(module.graph._codegen)
    state.graph.eliminate_dead_code()
    state.graph.lint()
    return GraphModule(module, state.graph)


def _is_eval_dropout(node: Node) -> bool:
    return node.target in DROPOUTS and not node.args[2]


def _alias(state: _Rebuild, node: Node, source: Any) -> None:  # noqa: ANN401
    """Let a no-op stand for its argument: the same value now and after every later write."""
    state.views[node] = _View(node, source)
    state.store(node, state.current(source))


def _copy(state: _Rebuild, node: Node) -> None:
    base = viewed_argument(node)
    made = state.emit(node)
    if base is not None:
        state.views[node] = _View(node, base)
    state.store(node, made)


def _write(state: _Rebuild, node: Node) -> None:
    """Replace an in-place op by its functional form and give the written storage a new version."""
    written = written_argument(node)
    assert written is not None
    root = state.root(written)
    if root.op == "get_attr":
        _copy(state, node)  # a buffer keeps its state by being written to
        return
    value = _drawn_value(state, node, written) or _functional_value(state, node)
    chain = [written]
    while chain[-1] in state.views:
        chain.append(state.views[chain[-1]].base)
    updated = [value]
    for view, base in itertools.pairwise(chain):
        updated.append(_updated_base(state, view, base, updated[-1]))
    state.version[root] = state.version.get(root, 0) + 1
    for old, new in zip(chain, updated, strict=True):
        state.store(old, new)
    _alias(state, node, written)


def _updated_base(state: _Rebuild, view: Node, base: Node, value: Node) -> Node:
    if _is_eval_dropout(view) or written_argument(view) is not None:
        return value  # an alias of the whole base
    made = write_through(state.graph, view, state.current(base), value)
    if made is None:
        msg = (
            f"{view.target} gives a view that {place(view)} later writes into, and qtool has no functional form for "
            f"that. Write the model without the in-place op, or skip the module."
        )
        raise CaptureError(msg)
    made.meta = dict(base.meta)
    return made


def _functional_value(state: _Rebuild, node: Node) -> Node:
    written = node.args[0]
    if node.target is aten.copy_.default:
        return _copied_value(state, node)
    target = _functional_overload(node)
    if target is None or not isinstance(written, Node):
        msg = (
            f"{node.target} ({place(node)}) writes into its argument and has no functional form that qtool knows. "
            f"Write the model without it, or skip the module."
        )
        raise CaptureError(msg)
    return state.emit(node, target)


def _drawn_value(state: _Rebuild, node: Node, written: Node) -> Node | None:
    """Return random numbers drawn into a tensor that was made for them, as `torch.empty(...).bernoulli_()` does.

    Such an op has no functional form; nothing else knows the tensor, so it may be written to.
    """
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    if not is_random or written.target not in EMPTY or written in state.version:
        return None
    return state.emit(node)


def _copied_value(state: _Rebuild, node: Node) -> Node:
    target, source = node.args[0], node.args[1]
    assert isinstance(target, Node)
    if isinstance(source, Node):
        old, new = target.meta["val"], source.meta["val"]
        if old.shape == new.shape and old.dtype == new.dtype:
            return state.current(source)
    return state.emit(node, aten.copy.default)


def _functional_overload(node: Node) -> Any:  # noqa: ANN401
    target: Any = node.target
    name = target._schema.name.removeprefix("aten::")
    if not name.endswith("_") or not hasattr(aten, name[:-1]):
        return None
    return getattr(getattr(aten, name[:-1]), target._overloadname, None)


def place(node: Node) -> str:
    """Return where in the model a node stands, for messages."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(list(stack.values())), ("", ""))[0] if stack else ""
    return f"in module {path!r}" if path else "in the model"
