"""The text of a TorchScript method: a line for each node of a graph, and a guard in front of each int8 node.

    if x.dtype != torch.float32:
        raise RuntimeError("qtool 1 node name=conv1 op=conv2d backends=fbgemm ...")

No pass of TorchScript removes a guard: what dtype a value has is not known before the program runs.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.fx import Node

from qtool.errors import ModelError
from qtool.exporters.torchscript.packed_graph import PACKS
from qtool.exporters.torchscript.signature import nested, signature_of
from qtool.passes import qdq_ops
from qtool.passes.to_reference import NODE_STAMP
from qtool.readers.marks import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch.fx import GraphModule

    from qtool.exporters.torchscript.signature import Shape
    from qtool.readers.marks import Marks

aten = torch.ops.aten

_INFIX: Final[Mapping[Any, str]] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.mod: "%",
    operator.truediv: "/", operator.pow: "**", operator.eq: "==", operator.ne: "!=", operator.lt: "<",
    operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip

_OTHER_WORDS: Final[Mapping[Any, str]] = {
    aten.sym_size.int: "torch.ops.aten.size",
    aten.sym_numel.default: "torch.ops.aten.numel",
    aten.view.default: "torch.ops.aten.reshape",  # packed ops return other strides than the reference program has
    aten._unsafe_view.default: "torch.ops.aten.reshape",
    math.ceil: "math.ceil", math.floor: "math.floor", torch.sym_float: "float",
    torch.sym_int: "int", torch.sym_max: "max", torch.sym_min: "min",
}  # fmt: skip
"""Where TorchScript has another word, or reckons with sizes as with numbers."""


@dataclass(frozen=True)
class Source:
    """A TorchScript method.

    Attributes:
        text: its source.
        held: the path in the graph's module of each tensor and packed weight, by the attribute that it reads.
        edges: the variable that holds the codes of each quantized edge, by edge name.
    """

    text: str
    held: Mapping[str, str]
    edges: Mapping[str, str]


def write_source(module: GraphModule, shape: Shape, marks: Marks, edges: Mapping[Node, str]) -> Source:
    """Return the method that computes what a packed graph computes.

    Args:
        module: what `pack_weights` made.
        shape: what the model takes and returns.
        marks: what its guards say.
        edges: names of quantized edges, by the node that holds their codes.

    Raises:
        ModelError: TorchScript has no word for an op, or no type for the inputs or outputs.
    """
    return _Writer(module, marks, shape).written(edges)


class _Writer:
    """Writes line by line; knows what each node and each attribute is called."""

    def __init__(self, module: GraphModule, marks: Marks, shape: Shape) -> None:
        self.graph = module.graph
        self.shape = shape
        self.names: dict[Node, str] = {}
        self.held: dict[str, str] = {}
        self.lines: list[str] = []
        self.from_inputs: set[Node] = set()
        self.file_texts = [encode(mark) for mark in marks.files]
        self.node_texts = {mark.name: encode(mark) for mark in marks.nodes}

    def written(self, edges: Mapping[Node, str]) -> Source:
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        signature = signature_of(self.shape.call, [node.name for node in inputs])
        for node, expression in zip(inputs, signature.leaves, strict=True):
            self.names[node] = node.name
            self.from_inputs.add(node)
            if expression != node.name:
                self.lines.append(f"{node.name} = {expression}")
        self._guard_with(inputs, self.file_texts)
        for node in self.graph.nodes:
            self._write(node)
        head = f"def forward({', '.join(('self', *signature.parameters))}):"
        text = "\n".join([head, *(f"    {line}" for line in self.lines)]) + "\n"
        return Source(text, self.held, {edge: self.names[node] for node, edge in edges.items()})

    def _write(self, node: Node) -> None:
        if node.op == "output":
            inputs = [each for each in self.graph.nodes if each.op == "placeholder"]
            self._guard_with(inputs, self.node_texts.values())  # of nodes that left no op behind
            leaves = [(self._value(leaf), _example(leaf)) for leaf in node.args[0]]  # type: ignore[union-attr]
            self.lines.append(f"return {nested(self.shape.result, iter(leaves))}")
        elif node.op == "get_attr":
            self.names[node] = f"self.{self._attribute(node)}"
        elif node.op == "call_function":
            self._guard_node(node)
            if not self.from_inputs.isdisjoint(node.all_input_nodes):
                self.from_inputs.add(node)
            self.names[node] = node.name
            text = self._call(node)
            self.lines.append(f"{node.name} = {text}" if node.users or _returns(node) else text)

    def _attribute(self, node: Node) -> str:
        path = str(node.target)
        name = path.removeprefix(f"{PACKS}.")
        name = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        name = f"_{name}" if name[0].isdigit() else name
        while name in _RESERVED or self.held.get(name, path) != path:
            name += "_"
        self.held[name] = path
        return name

    # --- guards

    def _guard_node(self, node: Node) -> None:
        """Guard the first op of each int8 node that reads a value which is no constant."""
        name = node.meta.get("custom", {}).get(NODE_STAMP, {}).get("node")
        if name in self.node_texts and self._guard_with(node.all_input_nodes, [self.node_texts[name]]):
            del self.node_texts[name]

    def _guard_with(self, values: Iterable[Node], texts: Iterable[str]) -> bool:
        """Write guards over the first value that depends on the inputs: freezing works out the dtype of a constant."""
        value = next((each for each in values if each in self.from_inputs and _dtype(each) is not None), None)
        if value is None:
            return False
        for text in texts:
            check = f"if {self.names[value]}.dtype != {_dtype(value)}:"
            self.lines += [check, f'    raise RuntimeError("{text}")']
        return True

    # --- ops

    def _call(self, node: Node) -> str:
        target: Any = node.target
        if target in _CASTS:
            return _CASTS[target](*(self._value(each) for each in node.args))
        if target is operator.getitem:
            return f"{self._value(node.args[0])}[{self._value(node.args[1])}]"
        if target in _INFIX:
            left, right = (self._value(each) for each in node.args)
            return f"({left} {_INFIX[target]} {right})"
        return f"{_word(node)}({', '.join(self._arguments(node))})"

    def _arguments(self, node: Node) -> list[str]:
        schema = getattr(node.target, "_schema", None)
        types = {} if schema is None else {each.name: str(each.type) for each in schema.arguments}
        names = list(types) if schema is not None else [""] * len(node.args)
        given = [self._value(each, types.get(name, "")) for name, each in zip(names, node.args, strict=False)]
        return given + [f"{key}={self._value(each, types.get(key, ''))}" for key, each in node.kwargs.items()]

    def _value(self, value: Any, kind: str = "") -> str:  # noqa: ANN401 - an argument of a node
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, (list, tuple)):
            items = ", ".join(self._value(each) for each in value)
            annotated = _list_kind(kind, value)
            return f"annotate({annotated}, [{items}])" if annotated else f"[{items}]"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        return str(value)  # a number, None, or torch's dtypes, layouts and memory formats


def _word(node: Node) -> str:
    """Return what TorchScript calls an op; it finds the overload by the arguments."""
    target: Any = node.target
    if target in _OTHER_WORDS:
        return _OTHER_WORDS[target]
    if not isinstance(target, torch._ops.OpOverload):
        msg = f"TorchScript has no word for {getattr(target, '__name__', target)} of node {node.name!r}"
        raise ModelError(msg)
    return f"torch.ops.{target.namespace}.{target._opname}"


def _list_kind(kind: str, value: Any) -> str:  # noqa: ANN401
    """Return the type to give to a list that TorchScript would take for one of tensors; empty if there is no need."""
    kind = kind.removeprefix("Optional[").rstrip("]") + "]" if kind.startswith("Optional[List") else kind
    if any(each is None for each in value):
        return "List[Optional[Tensor]]"
    return kind.replace("SymInt", "int") if not value and kind.startswith("List[") else ""


def _returns(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or bool(schema.returns)


def _dtype(node: Node) -> torch.dtype | None:
    """Return the dtype of the tensor a node gives; None if it gives none."""
    if (
        getattr(node.target, "namespace", None) == "quantized"
        or node.target is aten._make_per_tensor_quantized_tensor.default
    ):
        return torch.quint8
    found = node.meta.get("val")
    return found.dtype if isinstance(found, torch.Tensor) else None


def _example(leaf: Any) -> Any:  # noqa: ANN401
    return leaf.meta.get("val") if isinstance(leaf, Node) else leaf


_RESERVED: Final = frozenset({"forward", "training", "self"})


# --- the arithmetic of exporters/aten.py in TorchScript's words


def _quantize(x: str, scale: str, zero_point: str, qmin: str, qmax: str, dtype: str) -> str:
    rounded = f"torch.add(torch.round(torch.mul({x}, {1.0 / float(scale)!r})), {zero_point})"
    return f"torch.clamp({rounded}, {qmin}, {qmax}).to({dtype})"


def _dequantize(codes: str, scale: str, zero_point: str, qmin: str, qmax: str, dtype: str) -> str:
    return f"torch.mul(torch.sub({codes}.to(torch.float32), {zero_point}), {scale})"


def _dequantize_per_channel(
    codes: str, scales: str, zero_points: str, axis: str, qmin: str, qmax: str, dtype: str
) -> str:
    # One of each per index of the axis: the axis moves to the end, where a row of scales belongs, and back.
    moved = f"torch.sub(torch.transpose({codes}.to(torch.float32), {axis}, -1), {zero_points})"
    return f"torch.transpose(torch.mul({moved}, {scales}), {axis}, -1)"


_CASTS: Final[Mapping[Any, Callable[..., str]]] = {
    qdq_ops.quantize_per_tensor: _quantize,
    qdq_ops.dequantize_per_tensor: _dequantize,
    qdq_ops.dequantize_per_channel: _dequantize_per_channel,
}
