"""The nodes that were found in an ONNX program, and what is known of its values so far."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role
from qtool.readers.onnx_messages import NODE_PREFIX
from qtool.readers.onnx_ops import CONVOLUTIONS, DEQUANTIZE, GEMMS, INTEGER, MATRIX_PRODUCTS
from qtool.readers.onnx_program import LEFT_OUT
from qtool.readers.onnx_quantization import NOTHING_BEHIND, UNKNOWN, Behind, Flow, code_limits
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qtool.readers.facts import Tensor
    from qtool.readers.onnx_program import Operation, Program
    from qtool.readers.onnx_quantization import Quantizations

NAME_WORD: Final = f"{NODE_PREFIX}node"
"""Key of a node's metadata under which `qtool export` writes the node's name."""

_MADE_UP: Final = "node_"
_WEIGHT: Final = ".weight"
"""How torch.onnx names operators that have no name, and torch the weight of a module."""

QDQ: Final = "QDQ"
QOPERATOR: Final = "QOperator"
"""The two forms of statically quantized graphs: float operators between quantize and dequantize, or ones on codes."""


class Notes:
    """What a walk over a program has found so far.

    Attributes:
        program: what is walked over.
        quantizations: reads its constants.
        flows: what is known of values, by number.
        absorbed: operators that belong to a layer before them, by index, and what they make.
        nodes: the layers, in order.
        forms: how often each form of quantized graph occurs in them.
    """

    def __init__(self, program: Program, tensors: Mapping[int, Tensor], quantizations: Quantizations) -> None:
        self.program = program
        self.quantizations = quantizations
        self.flows = {value: Flow(tensor=tensor) for value, tensor in tensors.items()}
        self.absorbed: dict[int, Flow] = {}
        self.nodes: list[Node] = []
        self.forms: Counter[str] = Counter()
        self._names: Counter[str] = Counter()

    def flow(self, value: int) -> Flow:
        """Return what is known of a value."""
        known = self.flows.get(value)
        if known is not None:
            return known
        producer = self.program.producers.get(value)
        if producer is not None and producer.op == DEQUANTIZE and producer.input(0) in self.flows:
            return self.dequantized(producer, self.flows[producer.input(0)])  # a bias that is dequantized later
        return UNKNOWN

    def dequantized(self, operation: Operation, codes: Flow) -> Flow:
        """Return what a DequantizeLinear makes of codes."""
        quantization = self.quantizations.of_dequantize(operation, codes)
        return dataclasses.replace(codes, is_codes=False, quantization=quantization)

    def note(
        self,
        operation: Operation,
        op: Op | None,
        compute: Compute,
        operands: Sequence[Operand],
        *,
        form: str = QDQ,
        behind: Behind = NOTHING_BEHIND,
        weight_index: int | None = None,
        note: str = "",
    ) -> str:
        """Add a node and return its name."""
        weight = next((each for each in operands if each.role is Role.WEIGHT), None)
        edge = "" if compute is Compute.FLOAT else behind.edge
        name = self._unique(operation.words.get(NAME_WORD) or edge or _name(operation, weight))
        makers = (maker for value in operation.inputs if value != LEFT_OUT for maker in self.flow(value).makers)
        node = Node(
            name=name,
            op=op or _weighted_pattern(operation, weight),
            target=operation.target,
            compute=compute,
            operands=tuple(operands),
            activation=behind.activation or _fused(operation),
            groups=operation.integer("group", 1) if "Conv" in operation.op else None,
            is_weight_in_out=self._is_in_out(operation, weight_index) if weight is not None else False,
            reads=tuple(dict.fromkeys(makers)),
            note=note,
        )
        self.nodes.append(node)
        if compute is not Compute.FLOAT:
            self.forms[f"{form} {compute.value}" if compute is Compute.STATIC else compute.value] += 1
        return name

    def _unique(self, name: str) -> str:
        free = name
        while self._names[free]:
            self._names[name] += 1
            free = f"{name}.{self._names[name]}"
        self._names[free] += 1
        return free

    def operand(self, role: Role, value: int, quantization: Quantization | None = None) -> Operand:
        """Return a value as a node uses it; without a quantization, with that of the codes its floats were."""
        flow = self.flow(value)
        name = self.program.names[value] if value != LEFT_OUT else ""
        if quantization is None and not flow.is_codes:
            quantization = flow.quantization
        return Operand(role=role, name=name, tensor=flow.tensor, quantization=quantization)

    def bias(self, value: int) -> Operand:
        """Return a value as the bias of a node."""
        operand = self.operand(Role.BIAS, value)
        if operand.quantization is None and operand.tensor is not None and operand.tensor.dtype == "int32":
            qmin, qmax = code_limits("int32")  # its scale is that of the input times that of the weight, not stated
            codes = Quantization(dtype="int32", qmin=qmin, qmax=qmax, scale=None, zero_point=())
            return dataclasses.replace(operand, quantization=codes)
        return operand

    def absorb(self, operations: Iterable[Operation], name: str) -> None:
        """Count operators to the node of that name."""
        for each in operations:
            self.absorbed[each.index] = Flow(makers=(name,))

    def _is_in_out(self, operation: Operation, weight_index: int | None) -> bool:
        if operation.op in INTEGER and operation.op not in GEMMS:
            return INTEGER[operation.op].is_in_out
        if operation.op == "Attention":
            return True
        if operation.op not in (*GEMMS, *MATRIX_PRODUCTS):
            return False
        index = 1 if weight_index is None else weight_index
        if operation.op in GEMMS:
            is_swapped = bool(operation.integer("transB" if index else "transA", 0))
        else:
            is_swapped = bool(operation.integer("transB", 0)) and operation.op == "FusedMatMul"
        return (index == 1) ^ is_swapped ^ self.flow(operation.input(index)).is_turned


def _name(operation: Operation, weight: Operand | None) -> str:
    """Return an operator's name; where torch.onnx made it up, the module path that the name of its weight holds."""
    stored = "" if weight is None or weight.tensor is None else weight.tensor.name
    is_made_up = operation.name.startswith(_MADE_UP) and stored.endswith(_WEIGHT)
    return stored.removesuffix(_WEIGHT) if is_made_up else operation.name


def _weighted_pattern(operation: Operation, weight: Operand | None) -> Op | None:
    if weight is None:
        return None
    if operation.op in (*MATRIX_PRODUCTS, *GEMMS):
        return Op.LINEAR
    if "Conv" not in operation.op or weight.tensor is None:
        return None
    patterns = CONVOLUTIONS["ConvTranspose" if "Transpose" in operation.op else "Conv"]
    dimensions = len(weight.tensor.shape) - 2
    return patterns[dimensions - 1] if 0 < dimensions <= len(patterns) else None


def _fused(operation: Operation) -> str | None:
    """Return the activation that the operator itself has, as ONNX Runtime's own do."""
    word = operation.text("activation")
    return word.lower() if word and word[:1].isalpha() else None
