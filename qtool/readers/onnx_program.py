"""The operators of an ONNX model in one row: subgraphs and called functions stand in it where they are run.

Values get numbers, so that two graphs can use one name for two of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from qtool.readers.onnx_messages import SCOPES_KEY, Reference, TensorMessage
from qtool.readers.onnx_ops import KNOWN_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from qtool.readers.onnx_messages import Attribute, GraphMessage, ModelMessage, NodeMessage

LEFT_OUT: Final = -1
"""Number of an input or output that a node does not use."""

_MAX_DEPTH: Final = 32
"""Of functions and subgraphs in each other."""

_MAX_PREFIX: Final = 200
_MAX_NAME: Final = 300
"""Characters of an operator's name: one inside functions and subgraphs has theirs before its own."""

_USES_PER_OPERATION: Final = 25
"""Inputs, outputs and attributes, on average, and initializers; those of functions count at each call."""

_TENSORS_PER_OPERATION: Final = 2
"""Likewise, of stored tensors: more than a file without functions may have."""

_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator that is run.

    Attributes:
        index: its place in the row.
        name: what people call it; untrusted text, not unique.
        domain: empty for ONNX's own operators.
        op: for example `Conv`; of a domain that is not known the same as `target`, so that it is taken for no other.
        inputs: numbers of values, or `LEFT_OUT`.
        outputs: likewise.
        attributes: by name, those of a calling function put in.
        words: its metadata.
        has_graphs: it runs subgraphs.
    """

    index: int
    name: str
    domain: str
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    words: Mapping[str, str]
    has_graphs: bool

    @property
    def target(self) -> str:
        """Its name with the domain in front, for example `com.microsoft::QGemm`; without it for ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain in KNOWN_DOMAINS and self.domain else self.op

    def input(self, index: int) -> int:
        """Return the number of an input, or `LEFT_OUT`."""
        return self.inputs[index] if index < len(self.inputs) else LEFT_OUT

    def integer(self, name: str, default: int) -> int:
        """Return an attribute that is an integer."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def text(self, name: str) -> str:
        """Return an attribute that is a text; empty if it has none."""
        value = self.attributes.get(name, "")
        return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class Program:
    """What a model runs.

    Attributes:
        operations: in the order of the file.
        names: of the values, by number; untrusted text.
        tensors: those that the file stores, by the number of their value.
        consumers: who reads a value, by its number.
        producers: who makes a value, by its number.
        results: numbers of the values that the model returns.
        left_out: what is not in it, a line each.
    """

    operations: Sequence[Operation]
    names: Sequence[str]
    tensors: Mapping[int, TensorMessage]
    consumers: Mapping[int, Sequence[Operation]]
    producers: Mapping[int, Operation]
    results: frozenset[int]
    left_out: tuple[str, ...]


def program_of(model: ModelMessage, max_operations: int) -> Program:
    """Return what a model runs.

    A model of more operators is cut short, and so is one whose functions and subgraphs run each other too deeply; what
    is missing is said in `left_out`.
    """
    return _Builder(model, max_operations).program()


@dataclass(slots=True)
class _Scope:
    """Names that are known in a graph; a subgraph knows those around it too, a function does not."""

    prefix: str
    depth: int
    values: dict[str, int] = field(default_factory=dict)
    around: _Scope | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Of the function that is called."""


class _Builder:
    def __init__(self, model: ModelMessage, max_operations: int) -> None:
        self.model = model
        self.max_operations = max_operations
        self.operations: list[Operation] = []
        self.names: list[str] = []
        self.tensors: dict[int, TensorMessage] = {}
        self.left_out: dict[str, None] = {}
        self.num_uses = 0
        self.num_runs = 0
        self.stack: list[tuple[Iterator[NodeMessage], _Scope]] = []

    def program(self) -> Program:
        scope = _Scope("", 0)
        self._enter(self.model.graph, scope)
        while self.stack and not self._is_too_long():
            nodes, inner = self.stack[-1]
            node = next(nodes, None)
            if node is None:
                self.stack.pop()
            else:
                self._run(node, inner)
        consumers: dict[int, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            for value in dict.fromkeys(operation.inputs):
                consumers[value].append(operation)
        producers = {value: operation for operation in self.operations for value in operation.outputs}
        results = frozenset(scope.values[name] for name in self.model.graph.outputs if name in scope.values)
        left_out = tuple(self.left_out)
        return Program(self.operations, self.names, self.tensors, consumers, producers, results, left_out)

    def _enter(self, graph: GraphMessage, scope: _Scope) -> None:
        if scope.depth > _MAX_DEPTH:
            self.left_out[f"functions and subgraphs that run each other deeper than {_MAX_DEPTH}"] = None
            return
        self.num_uses += len(graph.inputs) + len(graph.tensors)
        for name in graph.inputs:
            if name not in scope.values:
                self._define(name, scope)
        for tensor in graph.tensors:
            value = scope.values.get(tensor.name)
            if value is None or value in self.tensors:
                value = self._define(tensor.name, scope)
            self.tensors[value] = tensor
        self.left_out.update((f"sparse tensor {name[:_MAX_NAME]}", None) for name in graph.sparse)
        self.stack.append((iter(graph.nodes), scope))

    def _run(self, node: NodeMessage, scope: _Scope) -> None:
        self.num_uses += len(node.inputs) + len(node.outputs) + len(node.attributes)
        self.num_runs += 1
        inputs = tuple(self._value(name, scope) for name in node.inputs)
        outputs = tuple(self._output(name, scope) for name in node.outputs)
        name = f"{scope.prefix}{_name(node)}"[:_MAX_NAME]
        body = self.model.functions.get((node.domain, node.op, node.overload))
        attributes = _given(node.attributes, scope.attributes)
        if body is not None:
            called = _Scope(f"{name[:_MAX_PREFIX]}/", scope.depth + 1, attributes={**body.defaults, **attributes})
            called.values.update(zip(body.inputs, inputs, strict=False))
            called.values.update(zip(body.outputs, outputs, strict=False))
            self.num_uses += len(body.outputs) + len(called.attributes)
            self._enter(body, called)
            return
        for attribute in attributes.values():
            if isinstance(attribute, TensorMessage) and node.op == "Constant" and outputs:
                self.tensors[outputs[0]] = attribute
            elif isinstance(attribute, TensorMessage):
                self.tensors[self._new(f"{name}.value")] = attribute
        op = node.op if node.domain in KNOWN_DOMAINS else f"{node.domain}::{node.op}"
        self.operations.append(
            Operation(
                len(self.operations), name, node.domain, op, inputs, outputs, attributes, node.words,
                bool(node.graphs),
            )
        )  # fmt: skip
        for attribute_name, graph in reversed(node.graphs):
            prefix = f"{name[:_MAX_PREFIX]}/{attribute_name[:_MAX_PREFIX]}/"
            self._enter(graph, _Scope(prefix, scope.depth + 1, around=scope, attributes=scope.attributes))

    def _value(self, name: str, scope: _Scope) -> int:
        if not name:
            return LEFT_OUT
        around: _Scope | None = scope
        while around is not None:
            if name in around.values:
                return around.values[name]
            around = around.around
        return self._define(name, scope)

    def _output(self, name: str, scope: _Scope) -> int:
        """Return the number of a value that a node makes; a name that was only read before it is the same value."""
        if not name:
            return LEFT_OUT
        value = scope.values.get(name)
        return self._define(name, scope) if value is None else value

    def _define(self, name: str, scope: _Scope) -> int:
        scope.values[name] = self._new(name)
        return scope.values[name]

    def _new(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def _is_too_long(self) -> bool:
        num_uses = max(self.num_uses / _USES_PER_OPERATION, len(self.tensors) / _TENSORS_PER_OPERATION)
        if num_uses <= self.max_operations and self.num_runs <= self.max_operations:
            return False
        self.left_out[f"what is run after {self.num_runs} operators"] = None
        return True


def _given(attributes: Mapping[str, Attribute], of_caller: Mapping[str, Attribute]) -> Mapping[str, Attribute]:
    """Return attributes with those that a function takes from its caller; what the caller does not give is left out."""
    if not any(isinstance(value, Reference) for value in attributes.values()):
        return attributes
    found = {}
    for name, value in attributes.items():
        given = of_caller.get(value.name) if isinstance(value, Reference) else value
        if given is not None and not isinstance(given, Reference):
            found[name] = given
    return found


def _name(node: NodeMessage) -> str:
    """Return a node's module path where it says one, else its name, or that of its result."""
    scopes = [first or second for first, second in _QUOTED.findall(node.words.get(SCOPES_KEY, ""))]
    path = scopes[-2] if len(scopes) > 1 else ""
    return path or node.name or next((name for name in node.outputs if name), "") or node.op
