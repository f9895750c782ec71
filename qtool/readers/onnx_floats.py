"""ONNX operators on floats: layers where they have a weight, quantized ones where their floats were codes just before.

A layer between DequantizeLinear and QuantizeLinear runs on codes in every runtime that knows the form (QDQ).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Operand, Role
from qtool.readers.onnx_nodes import QOPERATOR
from qtool.readers.onnx_ops import (
    ALWAYS_WEIGHTED,
    GEMMS,
    KEEPS_CODES,
    MATRIX_PRODUCTS,
    PATTERNS,
    WEIGHTED,
)
from qtool.readers.onnx_program import LEFT_OUT
from qtool.readers.onnx_quantization import Behind, Flow, is_integer
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.readers.onnx_nodes import Notes
    from qtool.readers.onnx_program import Operation

_MAX_OUTPUTS: Final = 16
"""Of a Split that are looked at in search of one that is quantized."""

_JOINS: Final = frozenset({Op.ADD, Op.MUL, Op.CAT})


def layer(notes: Notes, operation: Operation, source: Flow) -> Flow | None:
    """Note down an operator that may be a layer; None if it is none."""
    if operation.has_graphs or not operation.outputs:
        return None
    if operation.op == "Gather" and source.tensor is not None:
        return _lookup(notes, operation, source)
    weights = _weights(notes, operation)
    if weights:
        return _weighted(notes, operation, weights)
    if source.is_codes and source.tensor is None:
        return _keeps(notes, operation, source)
    return _unweighted(notes, operation)


def _weights(notes: Notes, operation: Operation) -> list[int]:
    """Return the indexes of the inputs that are weights."""
    form = WEIGHTED.get(operation.op)
    if form is None:
        return []
    found = []
    for index in form.weights:
        flow = notes.flow(operation.input(index))
        if flow.is_codes:
            continue
        if flow.tensor is not None and (flow.quantization is not None or not is_integer(flow.tensor.dtype)):
            found.append(index)
    if not found and operation.op in ALWAYS_WEIGHTED:
        return list(form.weights)  # worked out while running, often from stored ones
    return found[:1] if 0 in form.weights else found


def _weighted(notes: Notes, operation: Operation, weights: Sequence[int]) -> Flow:
    """Note down a layer with weights."""
    form = WEIGHTED[operation.op]
    others = [index for index in _data_inputs(operation) if index not in weights]
    inputs = [notes.operand(Role.INPUT, operation.input(index)) for index in others]
    flows = [notes.flow(operation.input(index)) for index in weights]
    operands = [*inputs, *(notes.operand(Role.WEIGHT, operation.input(index)) for index in weights)]
    value = operation.outputs[0]
    absorbed: tuple[Operation, ...] = ()
    if form.bias is not None and operation.input(form.bias) != LEFT_OUT:
        operands.append(notes.bias(operation.input(form.bias)))
    elif operation.op == "MatMul" and (added := _added_bias(notes, value)) is not None:
        absorbed = (added,)
        value = added.outputs[0]
        operands.append(notes.bias(next(each for each in added.inputs if each != operation.outputs[0])))
    behind = notes.quantizations.behind(value)
    if behind.quantization is not None:
        operands.append(notes.operand(Role.OUTPUT, operation.outputs[0], behind.quantization))
    compute = _compute(flows, [notes.flow(operation.input(index)) for index in others])
    behind = dataclasses.replace(behind, absorbed=(*absorbed, *behind.absorbed))
    return _noted(notes, operation, None, compute, operands, behind, weights[0])


def _data_inputs(operation: Operation) -> Sequence[int]:
    """Return the indexes of the inputs that a layer computes with, weights among them."""
    return (0, 1) if operation.op in (*MATRIX_PRODUCTS, *GEMMS) else (0,)


def _added_bias(notes: Notes, value: int) -> Operation | None:
    """Return the Add that adds a stored row to a product."""
    added = notes.quantizations.only_reader(value)
    if added is None or added.op != "Add" or len(added.inputs) != 2 or not added.outputs:
        return None
    others = [each for each in added.inputs if each != value]
    tensor = notes.flow(others[0]).tensor if others else None
    is_row = tensor is not None and bool(tensor.shape) and tensor.num_elements == tensor.shape[-1]
    return added if is_row else None


def _lookup(notes: Notes, operation: Operation, source: Flow) -> Flow | None:
    """Note down an embedding, which may look up codes and dequantize what it found."""
    tensor = source.tensor
    assert tensor is not None
    behind = notes.quantizations.dequantize_behind(operation.outputs[0]) if source.quantization is None else None
    quantization = source.quantization
    if behind is not None:
        quantization = notes.quantizations.of_dequantize(behind, source)
    if len(tensor.shape) < 2 or (quantization is None and is_integer(tensor.dtype)):
        return None
    compute = Compute.FLOAT if quantization is None else Compute.WEIGHT_ONLY
    compute = Compute.FAKE_QUANTIZED if source.is_fake else compute
    operand = notes.operand(Role.WEIGHT, operation.input(0), quantization)
    name = notes.note(operation, None, compute, [operand])
    if behind is not None:
        notes.absorb((behind,), name)
    return Flow(makers=(name,))


def _keeps(notes: Notes, operation: Operation, source: Flow) -> Flow | None:
    """Note down an operator that moves codes, or takes the largest."""
    if operation.op not in KEEPS_CODES or source.quantization is None or operation.op == "Identity":
        return None
    operands = [
        notes.operand(Role.INPUT, operation.input(0), source.quantization),
        notes.operand(Role.OUTPUT, operation.outputs[0], source.quantization),
    ]
    name = notes.note(operation, PATTERNS.get(operation.op), Compute.STATIC, operands, form=QOPERATOR)
    return dataclasses.replace(source, makers=(name,))


def _unweighted(notes: Notes, operation: Operation) -> Flow | None:
    """Note down an operator whose inputs were all codes and whose result becomes codes.

    With one float among them, be it a constant, every runtime computes in float.
    """
    op = _pattern(operation)
    found = ((value, notes.quantizations.behind(value)) for value in operation.outputs[:_MAX_OUTPUTS])
    value, behind = next((each for each in found if each[1].quantization is not None), (LEFT_OUT, None))
    if behind is None:
        return None
    indexes = range(len(operation.inputs)) if op in _JOINS else _data_inputs(operation)
    flows = [notes.flow(operation.input(index)) for index in indexes if operation.input(index) != LEFT_OUT]
    if not flows or any(flow.quantization is None or flow.is_codes for flow in flows):
        return None
    operands = [notes.operand(Role.INPUT, value) for value in operation.inputs[: len(flows)] if value != LEFT_OUT]
    operands.append(notes.operand(Role.OUTPUT, value, behind.quantization))
    compute = Compute.DYNAMIC if any(flow.is_dynamic for flow in flows) else Compute.STATIC
    return _noted(notes, operation, op, compute, operands, behind, None)


def _noted(
    notes: Notes,
    operation: Operation,
    op: Op | None,
    compute: Compute,
    operands: Sequence[Operand],
    behind: Behind,
    weight: int | None,
) -> Flow:
    name = notes.note(operation, op, compute, operands, behind=behind, weight_index=weight)
    notes.absorb(behind.absorbed, name)
    return Flow(makers=(name,))


def _compute(weights: Sequence[Flow], inputs: Sequence[Flow]) -> Compute:
    """Return how a layer computes, by what its weights and inputs were before they were floats."""
    if all(flow.quantization is None for flow in weights):
        return Compute.FLOAT
    if any(flow.is_fake for flow in weights):
        return Compute.FAKE_QUANTIZED
    if any(flow.is_dynamic for flow in inputs):
        return Compute.DYNAMIC
    return Compute.STATIC if inputs and all(flow.quantization for flow in inputs) else Compute.WEIGHT_ONLY


def _pattern(operation: Operation) -> Op | None:
    op = PATTERNS.get(operation.op)
    if op is Op.INTERPOLATE and operation.text("mode") in ("", "nearest"):
        return Op.LAYOUT
    return op
