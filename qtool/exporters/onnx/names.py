"""Names that a user of the file sees: inputs, outputs and dynamic sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import onnx_ir as ir
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from qtool.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.export import ExportedProgram

    from qtool.stamp.schema import InputStamp

ONLY_OUTPUT = "output"


def output_names(exported: ExportedProgram) -> list[str]:
    """Return a name for each output tensor, from where it stands in what the model returns.

    Raises:
        ModelError: the model returns numbers or words, which an ONNX model cannot.

    Example:
        A tensor is `output`; of `(a, {"mask": b})` they are `output.0` and `output.1.mask`; of `{"logits": a}`
        `logits`. None is left out.
    """
    outputs = [s.arg for s in exported.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    structure = exported.call_spec.out_spec
    nested = pytree.tree_unflatten(range(len(outputs)), structure)
    names = []
    for path, index in pytree.tree_flatten_with_path(nested)[0]:
        name = _joined(path)
        if not isinstance(outputs[index], ConstantArgument):
            names.append(name)
        elif outputs[index].value is not None:
            msg = f"the model returns {outputs[index].value!r} as {name!r}; an ONNX model returns tensors alone"
            raise ModelError(msg)
    return names


def _joined(path: Sequence[object]) -> str:
    """Return a path of keys as one name; `output` stands before a number, and alone for the whole."""
    parts = [str(_key(part)) for part in path]
    if not parts or isinstance(_key(path[0]), int):
        parts.insert(0, ONLY_OUTPUT)
    return ".".join(parts)


def _key(part: object) -> object:
    for attribute in ("key", "idx", "name"):  # of a dict, a sequence, a dataclass or named tuple
        if hasattr(part, attribute):
            return getattr(part, attribute)
    return part


def name_inputs_and_outputs(graph: ir.Graph, inputs: Sequence[InputStamp], outputs: Sequence[str]) -> None:
    """Give the inputs their stamped names and sizes and the outputs theirs; the graph is changed in place.

    An output bears a name that an input has with `_output` added.
    """
    sizes = _named_sizes(graph, inputs)
    for value in _values(graph):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(size, sizes) for size in value.shape])
    names = [stamp.name for stamp in inputs]
    names += [f"{name}_output" if name in names else name for name in outputs]
    _free_names(graph, names)
    for value, name in zip(graph.inputs, names[: len(inputs)], strict=True):
        value.name = name
    for index, name in enumerate(names[len(inputs) :]):
        _own_output(graph, index).name = name


def _named_sizes(graph: ir.Graph, inputs: Sequence[InputStamp]) -> dict[str, str]:
    sizes = {}
    for value, stamp in zip(graph.inputs, inputs, strict=True):
        assert value.shape is not None
        for size, word in zip(value.shape, stamp.shape, strict=True):
            if isinstance(size, ir.SymbolicDim) and isinstance(word, str):
                sizes[str(size.value)] = word
    return sizes


def _renamed(size: int | ir.SymbolicDim, sizes: dict[str, str]) -> int | str | None:
    if isinstance(size, int):
        return size
    if size.value is None:
        return None
    return re.sub(r"[A-Za-z_]\w*", lambda found: sizes.get(found[0], found[0]), size.value)


def _free_names(graph: ir.Graph, names: Sequence[str]) -> None:
    """Rename inner values that bear a name which an input or output is to have."""
    wanted = set(names)
    taken = wanted | {str(value.name) for value in _values(graph)}
    for value in _values(graph):
        if value.name in wanted:
            number = 2
            while f"{value.name}.{number}" in taken:
                number += 1
            value.name = f"{value.name}.{number}"
            taken.add(value.name)


def _own_output(graph: ir.Graph, index: int) -> ir.Value:
    """Return an output that is the result of a node, and no other output, so that it can have a name of its own."""
    value = graph.outputs[index]
    producer = value.producer()
    if producer is not None and value not in graph.outputs[:index]:
        return value
    identity = ir.node("Identity", [value], name=f"node_output_{index}")
    made = identity.outputs[0]
    made.type, made.shape = value.type, value.shape
    graph.append(identity)
    graph.outputs[index] = made
    return made


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
