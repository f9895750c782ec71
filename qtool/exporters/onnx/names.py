"""Names that a user of the file sees: inputs, outputs and dynamic sizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import onnx_ir as ir
from torch.export.graph_signature import ConstantArgument, OutputKind

from qtool.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.export import ExportedProgram

    from qtool.stamp.schema import InputStamp


def names_of_tensors(exported: ExportedProgram, names: Sequence[str]) -> list[str]:
    """Return the names of those outputs that are tensors; None is left out.

    Args:
        exported: the program.
        names: of all its outputs, as `output_names` returns them.

    Raises:
        ModelError: the model returns numbers or words, which an ONNX model cannot.
    """
    outputs = [s.arg for s in exported.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    kept = []
    for name, output in zip(names, outputs, strict=True):
        if not isinstance(output, ConstantArgument):
            kept.append(name)
        elif output.value is not None:
            msg = f"the model returns {output.value!r} as {name!r}; an ONNX model returns tensors alone"
            raise ModelError(msg)
    return kept


def name_inputs_and_outputs(graph: ir.Graph, inputs: Sequence[InputStamp], outputs: Sequence[str]) -> None:
    """Give the inputs their stamped names and sizes and the outputs theirs; the graph is changed in place."""
    sizes = _named_sizes(graph, inputs)
    for value in _values(graph):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(size, sizes) for size in value.shape])
    names = [stamp.name for stamp in inputs]
    _free_names(graph, [*names, *outputs])
    for value, name in zip(graph.inputs, names, strict=True):
        value.name = name
    for index, name in enumerate(outputs):
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
