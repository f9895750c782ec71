"""Guards: assertions that always hold, whose messages say what each int8 node was made for.

    aten._assert_async.msg(qtool_guard, "qtool 1 node name=conv1 ...")        qtool_guard is a buffer, and true

Plain ATen, so nothing but torch is needed to run them, and no pass removes them: they have an effect, and what they
assert is not known before the program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from qtool.passes.to_reference import NODE_STAMP
from qtool.readers.marks import encode

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from qtool.readers.marks import Marks

BUFFER: Final = "qtool_guard"
_ASSERT: Final = torch.ops.aten._assert_async.msg


def insert_guards(program: ExportedProgram, marks: Marks) -> ExportedProgram:
    """Add a guard in front of each int8 node and one of the file in front of all; returns its argument."""
    true = _true_buffer(program)
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    start = inputs[-1].next
    firsts = _first_nodes(program)
    for mark in marks.files:
        _insert(program, start, true, encode(mark))
    for node_mark in marks.nodes:
        _insert(program, firsts.get(node_mark.name, start), true, encode(node_mark))
    program.graph_module.recompile()
    program.validate()
    return program


def _first_nodes(program: ExportedProgram) -> dict[str, Node]:
    """Return the first of the ops that each int8 node has become, by the node's name."""
    found: dict[str, Node] = {}
    for node in program.graph.nodes:
        name = node.meta.get("custom", {}).get(NODE_STAMP, {}).get("node")
        if name is not None and node.op == "call_function":
            found.setdefault(name, node)
    return found


def _insert(program: ExportedProgram, where: Node, true: Node, text: str) -> None:
    with program.graph.inserting_before(where):
        guard = program.graph.call_function(_ASSERT, (true, text))
    guard.meta["val"] = None


def _true_buffer(program: ExportedProgram) -> Node:
    """Add a buffer that holds True, behind the other buffers."""
    specs = program.graph_signature.input_specs
    place = sum(spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) for spec in specs)
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    name = BUFFER
    while name in program.state_dict or name in program.constants:
        name += "_"
    value = torch.tensor(True)
    with program.graph.inserting_before(inputs[place]):
        node = program.graph.placeholder(f"b_{name}")
    node.meta["val"] = inputs[-1].meta["val"].fake_mode.from_tensor(value)
    specs.insert(place, InputSpec(InputKind.BUFFER, TensorArgument(node.name), name, persistent=True))
    program.state_dict[name] = value
    return node
