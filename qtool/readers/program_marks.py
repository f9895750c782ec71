"""Reads the marks in the graph of a .pt2, and which of its int8 layers have none; nothing is loaded.

Two carriers: the message of an assertion (a guard), and `metadata.custom` of a node, which says less.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from qtool.readers.int8_layers import Step, int8_layers
from qtool.readers.marks import GraphFacts, Marks, NodeMark, collect, node_mark, num_marked_layers
from qtool.stamp import bounded_json
from qtool.types import MAC_OPS, Op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.archive import Archive

_GUARD: Final = "torch.ops.aten._assert_async.msg"
_MULTIPLIES: Final = re.compile(
    r"torch\.ops\.aten\.(_?convolution|conv[1-3]d|conv_transpose[1-3]d|conv_tbc|linear|addmm|baddbmm|mm|bmm|matmul)\."
)
_OPS: Final = {"convolution": Op.CONV2D, "_convolution": Op.CONV2D, "addmm": Op.LINEAR, "mm": Op.LINEAR}
"""Patterns by the op that a decomposition makes of them; other ops bear the pattern's name."""
_STORED: Final = ("parameter", "buffer", "tensor_constant")
_INT8: Final = 2
"""Source: torch/_export/serde/schema.py, ScalarType.CHAR."""


def program_facts(archive: Archive) -> GraphFacts:
    """Return the marks in the graphs of a .pt2, and how many of its int8 layers have none."""
    guards, customs, num_layers, num_marked = [], [], 0, 0
    for name in archive.names:
        if not (name.startswith("models/") and name.endswith(".json")):
            continue
        program = _part(archive.json(name), "graph_module")
        nodes = [node for node in _items(_part(program, "graph"), "nodes") if isinstance(node, dict)]
        guards += [text for node in nodes for text in _guard_texts(node)]
        stamps = [_custom(node) for node in nodes]
        customs += [mark for mark in stamps if mark is not None]
        layers = list(int8_layers(_steps(nodes), _int8_weights(program)))
        num_layers += len(layers)
        num_marked += sum(stamps[layer.index] is not None for layer in layers)
    marks = collect(guards)
    known = {mark.name for mark in marks.nodes}
    # A node may have become several ops; the layer among them says most.
    customs.sort(key=lambda mark: mark.op is None)
    kept = {mark.name: mark for mark in reversed(customs) if mark.name not in known}
    missing = max(0, num_layers - max(num_marked, num_marked_layers(guards)))
    return GraphFacts(Marks(marks.files, (*marks.nodes, *reversed(kept.values()))), num_layers, missing)


def _guard_texts(node: Mapping[str, Any]) -> Iterator[str]:
    if node.get("target") == _GUARD:
        for given in _items(node, "inputs"):
            text = _part(given, "arg").get("as_string")
            if isinstance(text, str):
                yield text


def _custom(node: Mapping[str, Any]) -> NodeMark | None:
    """Return what the node's own metadata says; None if that is no stamp of an int8 node."""
    text = _part(node, "metadata").get("custom")
    if not isinstance(text, str):
        return None
    try:
        said = _part(bounded_json.loads(text), "qtool")
    except (ValueError, RecursionError):
        return None
    words = {"name": said.get("node"), "backends": said.get("backend"), "op": _pattern(node)}
    words["reduce_range"] = str(said.get("reduce_range")).lower()
    return node_mark({key: word for key, word in words.items() if isinstance(word, str)})


def _pattern(node: Mapping[str, Any]) -> str | None:
    """Return the pattern of a layer; None for every other op."""
    found = _MULTIPLIES.match(str(node.get("target")))
    if found is None:
        return None
    name = _OPS.get(found[1], found[1])
    return name if name in set(MAC_OPS) else None


def _steps(nodes: list[dict[str, Any]]) -> Iterator[Step]:
    for index, node in enumerate(nodes):
        multiplies = bool(_MULTIPLIES.match(str(node.get("target"))))
        yield Step(index, multiplies, tuple(_tensors(node.get("inputs"))), tuple(_tensors(node.get("outputs"))))


def _int8_weights(program: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the stored tensors whose dtype is int8."""
    values = _part(_part(program, "graph"), "tensor_values")
    for spec in _items(_part(program, "signature"), "input_specs"):
        for kind in _STORED:
            name = _part(_part(spec, kind), "arg").get("name")
            if isinstance(name, str) and _part(values, name).get("dtype") == _INT8:
                yield name


def _tensors(tree: object) -> Iterator[str]:
    """Yield the names of the tensors in the arguments or results of a node, without recursion."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            for key, value in part.items():
                if key == "as_tensor" and isinstance(value, dict) and isinstance(value.get("name"), str):
                    yield value["name"]
                elif key == "as_tensors" and isinstance(value, list):
                    left.extend({"as_tensor": each} for each in value)
                elif isinstance(value, (dict, list)):
                    left.append(value)


def _part(tree: object, key: str) -> dict[str, Any]:
    """Return an object within another; an empty one where the file has something else."""
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, dict) else {}


def _items(tree: object, key: str) -> list[Any]:
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, list) else []
