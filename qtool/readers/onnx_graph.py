"""Opens an ONNX model with the standard library alone: stamp, marks, tensors and layers; weights stay where they are.

The way of the data: bytes --onnx_messages--> messages --onnx_program--> operators in a row --onnx_layers--> nodes;
and, at their side, tensors --onnx_tensors--> places and small numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.facts import BITS, FileFacts, FileKind, ModelFacts, Role, StampProblem, StampProblemKind
from qtool.readers.int8_layers import Step, int8_layers
from qtool.readers.marks import GraphFacts, Marks, node_mark
from qtool.readers.onnx_file import STAMP_KEY
from qtool.readers.onnx_layers import layers_of
from qtool.readers.onnx_messages import NODE_PREFIX, max_parts, read_model
from qtool.readers.onnx_ops import CALLS_PYTHON, COMPILED, GEMMS, KNOWN_DOMAINS, MATRIX_PRODUCTS, NOT_READ
from qtool.readers.onnx_program import program_of
from qtool.readers.onnx_quantization import Quantizations
from qtool.readers.onnx_tensors import Storage
from qtool.readers.qtool_file import stamp_from
from qtool.readers.risks import Risk, RiskKind
from qtool.readers.source import OpenModel
from qtool.stamp.schema import Stamp

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping

    from qtool.readers.facts import Node, Tensor
    from qtool.readers.onnx_messages import ModelMessage
    from qtool.readers.onnx_program import Operation, Program
    from qtool.readers.source import Source

KEYS: Final = {"node": "name", "backend": "backends"}
"""Words of a mark that bear another name in a node's metadata."""

_FORMS: Final = {
    "QDQ static": "QDQ graph",
    "QOperator static": "QOperator graph",
    "dynamic": "dynamically quantized graph",
    "weight_only": "weight-only quantized graph",
    "fake_quantized": "fake-quantized graph",
}

_MAX_LINES: Final = 100
"""Of what was not understood."""

_MAX_SHOWN: Final = 200


def open_onnx(source: Source) -> OpenModel:
    """Return what an ONNX file says and holds.

    Raises:
        FileFormatError: the file is damaged, or has more parts than are read.
    """
    message = read_model(source, STAMP_KEY)
    program = program_of(message, max_parts(source.num_bytes))
    storage = Storage(source)
    stored: dict[int, Tensor] = {}  # by message: a function that is called twice has its tensors once
    for value, each in program.tensors.items():
        if id(each) not in stored:
            stored[id(each)] = storage.tensor(each, program.names[value])
    tensors = {value: stored[id(each)] for value, each in program.tensors.items()}
    notes = layers_of(program, tensors, Quantizations(program, tensors, storage))
    risks = (*storage.risks, *_risky_operators(program.operations))
    model = ModelFacts(
        producer=message.producer or None,
        form=_form(notes.forms, message.opsets),
        tensors=tuple(stored.values()),
        nodes=tuple(notes.nodes),
        risks=risks,
        not_understood=tuple(_not_understood(message, program, notes.nodes))[:_MAX_LINES],
    )
    missing = StampProblem(StampProblemKind.MISSING, "it has no stamp")
    stamp = missing if message.stamp_json is None else stamp_from(message.stamp_json)
    facts = FileFacts(
        where=source.where,
        kind=FileKind.ONNX,
        num_bytes=source.num_bytes,
        stamp=stamp if isinstance(stamp, Stamp) else None,
        stamp_problem=stamp if isinstance(stamp, StampProblem) else None,
        plan_json=None,
        config_json=None,
        content_digest="",
        risks=risks,
        graph=_graph_facts(program.operations, tensors),
        model=model,
    )
    return OpenModel(facts, storage.blocks)


def _form(forms: Counter[str], opsets: Mapping[str, int]) -> str:
    words = [_FORMS[form] for form, _ in forms.most_common()]
    if "" in opsets:
        words.append(f"opset {opsets['']}")
    return ", ".join(words)


def _risky_operators(operations: Iterable[Operation]) -> Iterator[Risk]:
    for each in {each.target: each for each in operations}.values():
        if each.op in COMPILED:
            yield Risk(RiskKind.COMPILED_CODE, "graph", f"operator {each.target}")
        elif each.op in CALLS_PYTHON:
            yield Risk(RiskKind.OPERATOR, "graph", f"operator {each.target} calls a Python function by its name")


def _not_understood(message: ModelMessage, program: Program, nodes: Iterable[Node]) -> Iterator[str]:
    for each in {each.target: each for each in program.operations}.values():
        if each.domain not in KNOWN_DOMAINS or each.op in NOT_READ:
            yield f"operator {each.target}"[:_MAX_SHOWN]
    yield from program.left_out
    if message.has_training:
        yield "the graphs that train the model"
    for node in nodes:
        weight = node.operand(Role.WEIGHT)
        tensor = None if weight is None else weight.tensor
        if tensor is not None and tensor.place is None and tensor.num_elements and tensor.dtype in BITS:
            yield f"values of {tensor.name[:_MAX_SHOWN]}, which are not there as plain bytes"


def _graph_facts(operations: Iterable[Operation], tensors: Mapping[int, Tensor]) -> GraphFacts:
    """Return the marks on nodes, and how many layers with int8 weights have none."""
    words = {each.index: _mark_words(each.words) for each in operations}
    marks = tuple(dict.fromkeys(mark for each in words.values() if (mark := node_mark(each)) is not None))
    steps = (
        Step(each.index, _multiplies(each.op), tuple(map(str, each.inputs)), tuple(map(str, each.outputs)))
        for each in operations
    )
    stored = (str(value) for value, each in tensors.items() if each.dtype == "int8" and len(each.shape) > 1)
    layers = list(int8_layers(steps, stored))
    num_unmarked = sum(node_mark(words[layer.index]) is None for layer in layers)
    return GraphFacts(Marks((), marks), len(layers), num_unmarked)


def _multiplies(op: str) -> bool:
    return op in (*MATRIX_PRODUCTS, *GEMMS) or op.removeprefix("QLinear") in ("Conv", "ConvTranspose") or op in (
        "ConvInteger", "FusedConv"
    )  # fmt: skip


def _mark_words(words: Mapping[str, str]) -> dict[str, str]:
    """Return a mark's words from a node's metadata."""
    found = {}
    for key, value in words.items():
        if key.startswith(NODE_PREFIX):
            word = key.removeprefix(NODE_PREFIX)
            found[KEYS.get(word, word)] = value
    return found
