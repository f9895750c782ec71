"""Finds the layers of an ONNX program: every quantized one, and every float one with a weight.

The operators are walked once, in order. What is known of a value (`Flow`) comes from the operators before it: that it
is codes, or was codes, and of which stored tensor. Behind a layer only the few operators that belong to it are looked
at: its activation, its bias, the QuantizeLinear of its result.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role
from qtool.readers.onnx_messages import NODE_PREFIX
from qtool.readers.onnx_ops import (
    ALWAYS_WEIGHTED,
    BLOCKWISE,
    CAST,
    CLIP,
    CONVOLUTIONS,
    DEQUANTIZE,
    DYNAMIC_QUANTIZE,
    GEMMS,
    INTEGER,
    KEEPS_CODES,
    MATRIX_PRODUCTS,
    MOVES,
    PATTERNS,
    QUANTIZE,
    WEIGHTED,
)
from qtool.readers.onnx_program import LEFT_OUT
from qtool.readers.onnx_quantization import UNKNOWN, Behind, Flow, code_limits, is_integer
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qtool.readers.facts import Tensor
    from qtool.readers.onnx_ops import Integer, Triple
    from qtool.readers.onnx_program import Operation, Program
    from qtool.readers.onnx_quantization import Quantizations

NAME_WORD: Final = f"{NODE_PREFIX}node"
"""Key of a node's metadata under which `qtool export` writes the node's name."""

_DYNAMIC_INPUT: Final = Quantization(dtype="uint8", qmin=0, qmax=255, scale=None, zero_point=None)
"""Source: DynamicQuantizeLinear in docs/Operators.md of onnx, whose codes are always uint8."""

_JOINS: Final = frozenset({Op.ADD, Op.MUL, Op.CAT})
_SCALE_STEPS: Final = 3


def layers_of(
    program: Program, tensors: Mapping[int, Tensor], quantizations: Quantizations
) -> tuple[tuple[Node, ...], Counter[str]]:
    """Return the layers in the order of the file, and how often each form of quantized graph occurs in them."""
    walk = _Walk(program, tensors, quantizations)
    for operation in program.operations:
        walk.step(operation)
    return tuple(walk.nodes), walk.forms


class _Walk:
    def __init__(self, program: Program, tensors: Mapping[int, Tensor], quantizations: Quantizations) -> None:
        self.program = program
        self.quantizations = quantizations
        self.flows = {value: Flow(tensor=tensor) for value, tensor in tensors.items()}
        self.absorbed: dict[int, Flow] = {}
        self.names: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self.forms: Counter[str] = Counter()

    def step(self, operation: Operation) -> None:
        """Learn what an operator makes of its inputs, and note it down if it is a layer."""
        flow = self.absorbed.get(operation.index)
        if flow is None:
            flow = self._flow_of(operation)
        for value in operation.outputs:
            if value not in self.flows:
                self.flows[value] = flow

    def _flow_of(self, operation: Operation) -> Flow:
        op = operation.op
        source = self._flow(operation.input(0))
        if op == QUANTIZE:
            quantization = self.quantizations.of_quantize(operation)
            is_fake = source.tensor is not None
            return dataclasses.replace(source, is_codes=True, quantization=quantization, is_fake=is_fake)
        if op == DEQUANTIZE:
            return self._dequantized(operation, source)
        if op == DYNAMIC_QUANTIZE:
            return Flow(is_codes=True, quantization=_DYNAMIC_INPUT, is_dynamic=True, makers=source.makers)
        if op == CLIP and source.is_codes and source.quantization is not None:
            return dataclasses.replace(source, quantization=self.quantizations.clipped(operation, source.quantization))
        if op in INTEGER:
            return self._on_codes(operation, INTEGER[op])
        if op in BLOCKWISE:
            return self._blockwise(operation)
        if op == CAST:
            return self._cast(operation, source)
        found = self._layer(operation, source)
        if found is None and op in MOVES:
            return _moved(operation, source)
        return found or UNKNOWN

    def _flow(self, value: int) -> Flow:
        known = self.flows.get(value)
        if known is not None:
            return known
        producer = self.program.producers.get(value)
        if producer is not None and producer.op == DEQUANTIZE and producer.input(0) in self.flows:
            return self._dequantized(producer, self.flows[producer.input(0)])  # a bias that is dequantized later
        return UNKNOWN

    def _dequantized(self, operation: Operation, codes: Flow) -> Flow:
        quantization = self.quantizations.of_dequantize(operation, codes)
        return dataclasses.replace(codes, is_codes=False, quantization=quantization)

    @staticmethod
    def _cast(operation: Operation, source: Flow) -> Flow:
        is_stored_integer = source.tensor is not None and is_integer(source.tensor.dtype)
        if source.is_codes or (is_stored_integer and source.quantization is None):
            return Flow(makers=source.makers)
        return source

    # --- operators on codes

    def _on_codes(self, operation: Operation, form: Integer) -> Flow:
        inputs = [self._codes(operation, triple, Role.INPUT, None) for triple in self._inputs(operation, form)]
        scale_behind, bias, absorbed = self._float_behind(operation, form)
        weights = []
        for triple in form.weights:
            flow = self._flow(operation.input(triple[0]))
            is_weight = flow.tensor is not None or operation.op not in MATRIX_PRODUCTS
            role = Role.WEIGHT if is_weight else Role.INPUT
            weights.append(self._codes(operation, triple, role, form, scale_behind))
        if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
            bias = self._bias(operation.input(form.bias))
        output = self._output(operation, form)
        is_dynamic = any(self._flow(operation.input(triple[0])).is_dynamic for triple in form.inputs)
        compute = Compute.DYNAMIC if is_dynamic else form.compute
        operands = [*inputs, *weights]
        if bias is not None:
            operands.append(bias)
        if output is not None and operation.outputs:
            operands.append(self._operand(Role.OUTPUT, operation.outputs[0], output))
        name = self._note(operation, form.op, compute, operands, form="QOperator")
        for each in absorbed:
            self.absorbed[each.index] = Flow(makers=(name,))
        return Flow(is_codes=output is not None, quantization=output, makers=(name,))

    def _inputs(self, operation: Operation, form: Integer) -> Iterable[Triple]:
        if operation.op == "QLinearConcat":
            return [(index, index + 1, index + 2) for index in range(2, len(operation.inputs), 3)]
        return form.inputs

    def _codes(
        self, operation: Operation, triple: Triple, role: Role, form: Integer | None, scale_behind: int | None = None
    ) -> Operand:
        """Return an operand in codes, with the scale and zero point that the operator is given for it."""
        index, scale_index, zero_index = triple
        value = operation.input(index)
        flow = self._flow(value)
        scale = LEFT_OUT if scale_index is None else operation.input(scale_index)
        if scale == LEFT_OUT and scale_behind is not None and role is Role.WEIGHT:
            scale = scale_behind
        zero_point = LEFT_OUT if zero_index is None else operation.input(zero_index)
        if role is Role.INPUT and scale == LEFT_OUT:
            known = flow.quantization if flow.is_codes else None
            return Operand(
                role=role,
                name=self.program.names[value] if value != LEFT_OUT else "",
                tensor=flow.tensor,
                quantization=known or (_DYNAMIC_INPUT if zero_index is None else self._bare(zero_point)),
            )
        known_range = flow.quantization if flow.is_codes else None
        dtype = known_range.dtype if known_range else self.quantizations.dtype_of(zero_point) or "uint8"
        if known_range is None and flow.tensor is not None:
            dtype = flow.tensor.dtype
        limits = (known_range.qmin, known_range.qmax) if known_range else None
        axis = 0 if form is None else self._channel_axis(operation, form, flow)
        quantization = self.quantizations.of(dtype, scale, zero_point, axis, limits)
        return self._operand(role, value, quantization)

    def _bare(self, zero_point: int) -> Quantization:
        """Return codes of which only the zero point is known."""
        dtype = self.quantizations.dtype_of(zero_point) or "uint8"
        return self.quantizations.of(dtype, LEFT_OUT, zero_point, 0, None)

    def _channel_axis(self, operation: Operation, form: Integer, flow: Flow) -> int:
        rank = 0 if flow.tensor is None else len(flow.tensor.shape)
        if operation.op in GEMMS and operation.integer("transB", 0):
            return 0
        return max(form.channel_axis + rank, 0) if form.channel_axis < 0 else form.channel_axis

    def _output(self, operation: Operation, form: Integer) -> Quantization | None:
        if form.output is None or operation.input(form.output[0]) == LEFT_OUT:
            return None
        scale, zero_point = (operation.input(index) for index in form.output)
        dtype = self.quantizations.dtype_of(zero_point)
        if dtype is None:
            known = self._flow(operation.input(0)).quantization
            dtype = "uint8" if known is None else known.dtype
        found = self.quantizations.of(dtype, scale, zero_point, 0, None)
        clip = self.quantizations.only_reader(operation.outputs[0]) if operation.outputs else None
        return self.quantizations.clipped(clip, found) if clip is not None and clip.op == CLIP else found

    def _float_behind(
        self, operation: Operation, form: Integer
    ) -> tuple[int | None, Operand | None, tuple[Operation, ...]]:
        """Return the weight's scale, the bias, and the operators that apply both to sums in int32: Cast, Mul, Add."""
        if form.output is not None or form.compute is not Compute.STATIC or not operation.outputs:
            return None, None, ()
        absorbed: list[Operation] = []
        scale: int | None = None
        bias = None
        value = operation.outputs[0]
        for _ in range(_SCALE_STEPS):
            reader = self.quantizations.only_reader(value)
            if reader is None or not reader.outputs or len(reader.inputs) != (1 if reader.op == CAST else 2):
                break
            others = [each for each in reader.inputs if each != value]
            if reader.op == "Mul" and scale is None and others:
                scale = self._constant_factor(others[0])
            elif reader.op == "Add" and scale is not None and others and self._flow(others[0]).tensor is not None:
                bias = self._bias(others[0])
            elif reader.op != CAST:
                break
            absorbed.append(reader)
            value = reader.outputs[0]
        return scale, bias, tuple(absorbed)

    def _constant_factor(self, value: int) -> int | None:
        """Return the constant among the factors of a product; the other is the input's scale."""
        if self.quantizations.constant(value) is not None:
            return value
        producer = self.program.producers.get(value)
        factors = producer.inputs if producer is not None and producer.op == "Mul" else ()
        return next((each for each in factors if self.quantizations.constant(each) is not None), None)

    def _blockwise(self, operation: Operation) -> Flow:
        form = BLOCKWISE[operation.op]
        value, scale, zero_point = (operation.input(index) for index in form.weight)
        bits, size = operation.integer("bits", 4), operation.integer("block_size", 0)
        stored = self._flow(value).tensor
        dtype = f"uint{bits}" if bits in (1, 2, 4, 8) else "unknown"
        quantization = self.quantizations.of(dtype, scale, zero_point, 1, None, size)
        if zero_point == LEFT_OUT and bits in (2, 4, 8):  # Source: docs/ContribOperators.md: 2^(bits - 1) by default
            quantization = dataclasses.replace(quantization, zero_point=(float(1 << bits - 1),))
        elif zero_point != LEFT_OUT and self.quantizations.dtype_of(zero_point) == "uint8" and bits < 8:
            quantization = dataclasses.replace(quantization, zero_point=None)  # packed as the weight is
        operands = [self._operand(Role.INPUT, operation.input(index)) for index in form.inputs]
        operands.append(self._operand(Role.WEIGHT, value, quantization))
        if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
            operands.append(self._bias(operation.input(form.bias)))
        sizes = " x ".join(str(operation.integer(word, 0)) for word in ("N", "K") if word in operation.attributes)
        note = f"{bits}-bit codes packed into bytes{f', {sizes}' if sizes else ''}" if stored else ""
        return Flow(makers=(self._note(operation, form.op, Compute.WEIGHT_ONLY, operands, form="", note=note),))

    # --- float operators, between codes or not

    def _layer(self, operation: Operation, source: Flow) -> Flow | None:
        """Note down an operator that may be a layer; None if it is none."""
        if operation.has_graphs or not operation.outputs:
            return None
        if operation.op == "Gather" and source.tensor is not None:
            return self._lookup(operation, source)
        weights = self._weights(operation)
        if weights:
            return self._weighted(operation, weights)
        if source.is_codes and source.tensor is None:
            return self._keeps(operation, source)
        return self._unweighted(operation)

    def _weights(self, operation: Operation) -> list[int]:
        form = WEIGHTED.get(operation.op)
        if form is None:
            return []
        found = []
        for index in form.weights:
            flow = self._flow(operation.input(index))
            if flow.is_codes:
                continue
            if flow.tensor is not None and (flow.quantization is not None or not is_integer(flow.tensor.dtype)):
                found.append(index)
        if not found and operation.op in ALWAYS_WEIGHTED:
            return list(form.weights)  # worked out while running, often from stored ones
        return found[:1] if 0 in form.weights else found

    def _weighted(self, operation: Operation, weights: Sequence[int]) -> Flow:
        form = WEIGHTED[operation.op]
        others = [index for index in self._data_inputs(operation) if index not in weights]
        inputs = [self._operand(Role.INPUT, operation.input(index)) for index in others]
        flows = [self._flow(operation.input(index)) for index in weights]
        operands = [*inputs, *(self._operand(Role.WEIGHT, operation.input(index)) for index in weights)]
        value = operation.outputs[0]
        absorbed: tuple[Operation, ...] = ()
        if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
            operands.append(self._bias(operation.input(form.bias)))
        elif operation.op == "MatMul" and (added := self._added_bias(value)) is not None:
            absorbed = (added,)
            value = added.outputs[0]
            operands.append(self._bias(next(each for each in added.inputs if each != operation.outputs[0])))
        behind = self.quantizations.behind(value)
        if behind.quantization is not None:
            operands.append(self._operand(Role.OUTPUT, operation.outputs[0], behind.quantization))
        compute = _compute(flows, [self._flow(operation.input(index)) for index in others])
        behind = dataclasses.replace(behind, absorbed=(*absorbed, *behind.absorbed))
        return self._noted(operation, None, compute, operands, behind, weights[0])

    def _data_inputs(self, operation: Operation) -> Sequence[int]:
        """Return the indexes of the inputs that a layer computes with, weights among them."""
        return (0, 1) if operation.op in (*MATRIX_PRODUCTS, *GEMMS) else (0,)

    def _added_bias(self, value: int) -> Operation | None:
        """Return the Add that adds a stored row to a product."""
        added = self.quantizations.only_reader(value)
        if added is None or added.op != "Add" or len(added.inputs) != 2 or not added.outputs:
            return None
        others = [each for each in added.inputs if each != value]
        tensor = self._flow(others[0]).tensor if others else None
        is_row = tensor is not None and bool(tensor.shape) and tensor.num_elements == tensor.shape[-1]
        return added if is_row else None

    def _lookup(self, operation: Operation, source: Flow) -> Flow | None:
        """Note down an embedding, which may look up codes and dequantize what it found."""
        tensor = source.tensor
        assert tensor is not None
        behind = self.quantizations.dequantize_behind(operation.outputs[0]) if source.quantization is None else None
        quantization = source.quantization
        if behind is not None:
            quantization = self.quantizations.of_dequantize(behind, source)
        if len(tensor.shape) < 2 or (quantization is None and is_integer(tensor.dtype)):
            return None
        compute = Compute.FLOAT if quantization is None else Compute.WEIGHT_ONLY
        compute = Compute.FAKE_QUANTIZED if source.is_fake else compute
        operand = self._operand(Role.WEIGHT, operation.input(0), quantization)
        name = self._note(operation, None, compute, [operand], form="QDQ")
        if behind is not None:
            self.absorbed[behind.index] = Flow(makers=(name,))
        return Flow(makers=(name,))

    def _keeps(self, operation: Operation, source: Flow) -> Flow | None:
        """Note down an operator that moves codes, or takes the largest."""
        if operation.op not in KEEPS_CODES or source.quantization is None or operation.op == "Identity":
            return None
        operands = [
            self._operand(Role.INPUT, operation.input(0), source.quantization),
            self._operand(Role.OUTPUT, operation.outputs[0], source.quantization),
        ]
        name = self._note(operation, PATTERNS.get(operation.op), Compute.STATIC, operands, form="QOperator")
        return dataclasses.replace(source, makers=(name,))

    def _unweighted(self, operation: Operation) -> Flow | None:
        """Note down an operator whose inputs were all codes and whose result becomes codes."""
        op = _pattern(operation)
        behind = self.quantizations.behind(operation.outputs[0])
        if behind.quantization is None:
            return None
        indexes = range(len(operation.inputs)) if op in _JOINS else self._data_inputs(operation)
        flows = [self._flow(operation.input(index)) for index in indexes if operation.input(index) != LEFT_OUT]
        if not flows or any(flow.quantization is None and flow.tensor is None for flow in flows):
            return None
        if all(flow.quantization is None or flow.is_codes or flow.tensor is not None for flow in flows):
            return None
        operands = [self._operand(Role.INPUT, value) for value in operation.inputs[: len(flows)] if value != LEFT_OUT]
        operands.append(self._operand(Role.OUTPUT, operation.outputs[0], behind.quantization))
        compute = Compute.DYNAMIC if any(flow.is_dynamic for flow in flows) else Compute.STATIC
        return self._noted(operation, op, compute, operands, behind, None)

    def _noted(
        self,
        operation: Operation,
        op: Op | None,
        compute: Compute,
        operands: Sequence[Operand],
        behind: Behind,
        weight: int | None,
    ) -> Flow:
        name = self._note(
            operation, op, compute, operands, form="QDQ", activation=behind.activation, weight_index=weight
        )
        for each in behind.absorbed:
            self.absorbed[each.index] = Flow(makers=(name,))
        return Flow(makers=(name,))

    # --- records

    def _note(
        self,
        operation: Operation,
        op: Op | None,
        compute: Compute,
        operands: Sequence[Operand],
        *,
        form: str,
        activation: str | None = None,
        weight_index: int | None = None,
        note: str = "",
    ) -> str:
        """Add a node and return its name."""
        weight = next((each for each in operands if each.role is Role.WEIGHT), None)
        name = self._unique(operation.words.get(NAME_WORD) or operation.name)
        makers = (maker for value in operation.inputs if value != LEFT_OUT for maker in self._flow(value).makers)
        is_convolution = "Conv" in operation.op and operation.op not in PATTERNS and "Concat" not in operation.op
        node = Node(
            name=name,
            op=op or _weighted_pattern(operation, weight),
            target=f"{operation.domain}::{operation.op}" if operation.domain else operation.op,
            compute=compute,
            operands=tuple(operands),
            activation=activation or _fused(operation),
            groups=operation.integer("group", 1) if is_convolution else None,
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
        while self.names[free]:
            self.names[name] += 1
            free = f"{name}.{self.names[name]}"
        self.names[free] += 1
        return free

    def _operand(self, role: Role, value: int, quantization: Quantization | None = None) -> Operand:
        flow = self._flow(value)
        name = self.program.names[value] if value != LEFT_OUT else ""
        if quantization is None and not flow.is_codes:
            quantization = flow.quantization
        return Operand(role=role, name=name, tensor=flow.tensor, quantization=quantization)

    def _bias(self, value: int) -> Operand:
        operand = self._operand(Role.BIAS, value)
        if operand.quantization is None and operand.tensor is not None and operand.tensor.dtype == "int32":
            qmin, qmax = code_limits("int32")  # its scale is that of the input times that of the weight, not stated
            codes = Quantization(dtype="int32", qmin=qmin, qmax=qmax, scale=None, zero_point=())
            return dataclasses.replace(operand, quantization=codes)
        return operand

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
        return (index == 1) ^ is_swapped ^ self._flow(operation.input(index)).is_turned


def _compute(weights: Sequence[Flow], inputs: Sequence[Flow]) -> Compute:
    """Return how a layer computes, by what its weights and inputs were before they were floats."""
    if all(flow.quantization is None for flow in weights):
        return Compute.FLOAT
    if any(flow.is_fake for flow in weights):
        return Compute.FAKE_QUANTIZED
    if any(flow.is_dynamic for flow in inputs):
        return Compute.DYNAMIC
    return Compute.STATIC if inputs and all(flow.quantization for flow in inputs) else Compute.WEIGHT_ONLY


def _moved(operation: Operation, source: Flow) -> Flow:
    if operation.op != "Transpose" or source.tensor is None:
        return source
    rank = len(source.tensor.shape)
    order = operation.attributes.get("perm", tuple(reversed(range(rank))))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return dataclasses.replace(source, is_turned=not source.is_turned) if rank > 1 and order == swapped else source


def _pattern(operation: Operation) -> Op | None:
    op = PATTERNS.get(operation.op)
    if op is Op.INTERPOLATE and operation.text("mode") in ("", "nearest"):
        return Op.LAYOUT
    return op


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
