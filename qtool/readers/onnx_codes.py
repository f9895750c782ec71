"""ONNX operators that compute on codes: scales and zero points are inputs of theirs, or stand behind them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Operand, Quantization, Role
from qtool.readers.onnx_nodes import QOPERATOR
from qtool.readers.onnx_ops import BLOCKWISE, CAST, CLIP, GEMMS, INTEGER, MATRIX_PRODUCTS
from qtool.readers.onnx_program import LEFT_OUT
from qtool.readers.onnx_quantization import Flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qtool.readers.onnx_nodes import Notes
    from qtool.readers.onnx_ops import Integer, Triple
    from qtool.readers.onnx_program import Operation

DYNAMIC_INPUT: Final = Quantization(dtype="uint8", qmin=0, qmax=255, scale=None, zero_point=None)
"""Source: DynamicQuantizeLinear in docs/Operators.md of onnx, whose codes are always uint8."""

_SCALE_STEPS: Final = 3
"""Cast, Mul and Add: from sums in int32 to floats."""


def on_codes(notes: Notes, operation: Operation) -> Flow:
    """Note down an operator that computes on codes, and return what it makes."""
    form = INTEGER[operation.op]
    inputs = [_codes(notes, operation, triple, Role.INPUT, form) for triple in _inputs(operation, form)]
    scale_behind, bias, absorbed = _float_behind(notes, operation, form)
    weights = []
    for triple in form.weights:
        flow = notes.flow(operation.input(triple[0]))
        is_weight = flow.tensor is not None or operation.op not in MATRIX_PRODUCTS
        role = Role.WEIGHT if is_weight else Role.INPUT
        weights.append(_codes(notes, operation, triple, role, form, scale_behind))
    if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
        bias = notes.bias(operation.input(form.bias))
    output = _output(notes, operation, form)
    is_dynamic = any(notes.flow(operation.input(triple[0])).is_dynamic for triple in form.inputs)
    compute = Compute.DYNAMIC if is_dynamic else form.compute
    operands = [*inputs, *weights]
    if bias is not None:
        operands.append(bias)
    if output is not None and operation.outputs:
        operands.append(notes.operand(Role.OUTPUT, operation.outputs[0], output))
    name = notes.note(operation, form.op, compute, operands, form=QOPERATOR)
    notes.absorb(absorbed, name)
    return Flow(is_codes=output is not None, quantization=output, makers=(name,))


def _inputs(operation: Operation, form: Integer) -> Iterable[Triple]:
    if operation.op == "QLinearConcat":
        return [(index, index + 1, index + 2) for index in range(2, len(operation.inputs), 3)]
    return form.inputs


def _codes(
    notes: Notes, operation: Operation, triple: Triple, role: Role, form: Integer, scale_behind: int | None = None
) -> Operand:
    """Return an operand in codes, with the scale and zero point that the operator is given for it."""
    index, scale_index, zero_index = triple
    value = operation.input(index)
    flow = notes.flow(value)
    known = flow.quantization if flow.is_codes else None
    scale = LEFT_OUT if scale_index is None else operation.input(scale_index)
    zero_point = LEFT_OUT if zero_index is None else operation.input(zero_index)
    if role is Role.WEIGHT and scale == LEFT_OUT and scale_behind is not None:
        scale = scale_behind
    if role is Role.INPUT and scale == LEFT_OUT:  # what made the codes knows their scale, if anything does
        if known is None and zero_index is None:
            known = DYNAMIC_INPUT
        if known is not None:
            return notes.operand(role, value, known)
    if known is not None:
        dtype, limits = known.dtype, (known.qmin, known.qmax)
    else:
        stated = notes.quantizations.dtype_of(zero_point) or "uint8"
        dtype, limits = stated if flow.tensor is None else flow.tensor.dtype, None
    axis = _channel_axis(operation, form, flow) if role is Role.WEIGHT else 0
    return notes.operand(role, value, notes.quantizations.of(dtype, scale, zero_point, axis, limits))


def _channel_axis(operation: Operation, form: Integer, flow: Flow) -> int:
    """Return the axis of a weight along which its scales stand."""
    rank = 0 if flow.tensor is None else len(flow.tensor.shape)
    if operation.op in GEMMS and operation.integer("transB", 0):
        return 0
    return max(form.channel_axis + rank, 0) if form.channel_axis < 0 else form.channel_axis


def _output(notes: Notes, operation: Operation, form: Integer) -> Quantization | None:
    if form.output is None or operation.input(form.output[0]) == LEFT_OUT:
        return None
    scale, zero_point = (operation.input(index) for index in form.output)
    dtype = notes.quantizations.dtype_of(zero_point)
    if dtype is None:
        known = notes.flow(operation.input(0)).quantization
        dtype = "uint8" if known is None else known.dtype
    found = notes.quantizations.of(dtype, scale, zero_point, 0, None)
    clip = notes.quantizations.only_reader(operation.outputs[0]) if operation.outputs else None
    return notes.quantizations.clipped(clip, found) if clip is not None and clip.op == CLIP else found


def _float_behind(
    notes: Notes, operation: Operation, form: Integer
) -> tuple[int | None, Operand | None, tuple[Operation, ...]]:
    """Return the weight's scale, the bias, and the operators that apply both to sums in int32: Cast, Mul, Add."""
    if form.output is not None or form.compute is not Compute.STATIC or not operation.outputs:
        return None, None, ()
    absorbed: list[Operation] = []
    scale: int | None = None
    bias = None
    value = operation.outputs[0]
    for _ in range(_SCALE_STEPS):
        reader = notes.quantizations.only_reader(value)
        if reader is None or not reader.outputs:
            break
        others = [each for each in reader.inputs if each != value]
        if reader.op == "Mul" and scale is None and others:
            scale = _constant_factor(notes, others[0])
        elif reader.op == "Add" and scale is not None and others and notes.flow(others[0]).tensor is not None:
            bias = notes.bias(others[0])
        elif reader.op != CAST:
            break
        absorbed.append(reader)
        value = reader.outputs[0]
    return scale, bias, tuple(absorbed)


def _constant_factor(notes: Notes, value: int) -> int | None:
    """Return the constant among the factors of a product; the other is the input's scale."""
    if notes.quantizations.constant(value) is not None:
        return value
    producer = notes.program.producers.get(value)
    factors = producer.inputs if producer is not None and producer.op == "Mul" else ()
    return next((each for each in factors if notes.quantizations.constant(each) is not None), None)


def blockwise(notes: Notes, operation: Operation) -> Flow:
    """Note down an operator whose weight has a scale for each block, and return what it makes."""
    form = BLOCKWISE[operation.op]
    value, scale, zero_point = (operation.input(index) for index in form.weight)
    bits, size = operation.integer("bits", 4), operation.integer("block_size", 0)
    stored = notes.flow(value).tensor
    dtype = f"uint{bits}" if bits in (1, 2, 4, 8) else "unknown"
    quantization = notes.quantizations.of(dtype, scale, zero_point, 1, None, size)
    if zero_point == LEFT_OUT and bits in (2, 4, 8):  # Source: docs/ContribOperators.md: 2^(bits - 1) by default
        quantization = dataclasses.replace(quantization, zero_point=(float(1 << bits - 1),))
    elif zero_point != LEFT_OUT and notes.quantizations.dtype_of(zero_point) == "uint8" and bits < 8:
        quantization = dataclasses.replace(quantization, zero_point=None)  # packed as the weight is
    operands = [notes.operand(Role.INPUT, operation.input(index)) for index in form.inputs]
    operands.append(notes.operand(Role.WEIGHT, value, quantization))
    if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
        operands.append(notes.bias(operation.input(form.bias)))
    sizes = " x ".join(str(operation.integer(word, 0)) for word in ("N", "K") if word in operation.attributes)
    note = f"{bits}-bit codes packed into bytes{f', {sizes}' if sizes else ''}" if stored else ""
    name = notes.note(operation, form.op, Compute.WEIGHT_ONLY, operands, note=note)
    return Flow(makers=(name,))
