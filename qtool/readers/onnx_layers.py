"""Finds the layers of an ONNX program: every quantized one, and every float one with a weight.

The operators are walked once, in order. What is known of a value (`Flow`) comes from the operators before it: that it
is codes, or was codes, and of which stored tensor. Behind a layer only the few operators that belong to it are looked
at: its activation, its bias, the QuantizeLinear of its result.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from qtool.readers.onnx_codes import DYNAMIC_INPUT, blockwise, on_codes
from qtool.readers.onnx_floats import layer
from qtool.readers.onnx_messages import DTYPES
from qtool.readers.onnx_nodes import Notes
from qtool.readers.onnx_ops import BLOCKWISE, CAST, CLIP, DEQUANTIZE, DYNAMIC_QUANTIZE, INTEGER, MOVES, QUANTIZE
from qtool.readers.onnx_quantization import UNKNOWN, Flow, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from qtool.readers.facts import Tensor
    from qtool.readers.onnx_program import Operation, Program
    from qtool.readers.onnx_quantization import Quantizations


def layers_of(program: Program, tensors: Mapping[int, Tensor], quantizations: Quantizations) -> Notes:
    """Return what a walk over a program finds: its layers in the order of the file."""
    notes = Notes(program, tensors, quantizations)
    for operation in program.operations:
        flow = notes.absorbed.get(operation.index)
        if flow is None:
            flow = _MAKES.get(operation.op, _float)(notes, operation)
        for value in operation.outputs:
            notes.flows.setdefault(value, flow)
    return notes


def _quantize(notes: Notes, operation: Operation) -> Flow:
    source = notes.flow(operation.input(0))
    quantization = notes.quantizations.of_quantize(operation)
    is_fake = source.tensor is not None
    return dataclasses.replace(source, is_codes=True, quantization=quantization, is_fake=is_fake)


def _dequantize(notes: Notes, operation: Operation) -> Flow:
    return notes.dequantized(operation, notes.flow(operation.input(0)))


def _dynamic_quantize(notes: Notes, operation: Operation) -> Flow:
    makers = notes.flow(operation.input(0)).makers
    return Flow(is_codes=True, quantization=DYNAMIC_INPUT, is_dynamic=True, makers=makers)


def _clip(notes: Notes, operation: Operation) -> Flow:
    source = notes.flow(operation.input(0))
    if not source.is_codes or source.quantization is None:
        return _float(notes, operation)
    return dataclasses.replace(source, quantization=notes.quantizations.clipped(operation, source.quantization))


def _cast(notes: Notes, operation: Operation) -> Flow:
    source = notes.flow(operation.input(0))
    is_stored_integer = source.tensor is not None and is_integer(source.tensor.dtype)
    dtype = source.quantization.dtype if source.is_codes and source.quantization is not None else None
    if dtype is not None and dtype == DTYPES.get(operation.integer("to", 0)):
        return source
    if source.is_codes or (is_stored_integer and source.quantization is None):
        return Flow(makers=source.makers)
    return source


def _float(notes: Notes, operation: Operation) -> Flow:
    source = notes.flow(operation.input(0))
    found = layer(notes, operation, source)
    if found is None and operation.op in MOVES:
        return _moved(operation, source)
    return found or UNKNOWN


def _moved(operation: Operation, source: Flow) -> Flow:
    if operation.op != "Transpose" or source.tensor is None:
        return source
    rank = len(source.tensor.shape)
    order = operation.attributes.get("perm", tuple(reversed(range(rank))))
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return dataclasses.replace(source, is_turned=not source.is_turned) if rank > 1 and order == swapped else source


_MAKES: Final[dict[str, Callable[[Notes, Operation], Flow]]] = {
    QUANTIZE: _quantize,
    DEQUANTIZE: _dequantize,
    DYNAMIC_QUANTIZE: _dynamic_quantize,
    CLIP: _clip,
    CAST: _cast,
    **dict.fromkeys(INTEGER, on_codes),
    **dict.fromkeys(BLOCKWISE, blockwise),
}
"""What each operator makes of its inputs."""
