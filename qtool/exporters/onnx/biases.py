"""Quantize biases: int32 codes with the scale that an int8 kernel adds up in.

    bias_codes = round_half_even(bias / (s_x * s_w))      s_x * s_w in float32, the division in float64

The reference program keeps biases in float32; ONNX Runtime takes int32 ones, with exactly this scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from qtool.errors import ModelError
from qtool.exporters.onnx.quantized import DEQUANTIZE, constant, is_constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_HAS_BIAS: Final = ("Conv", "ConvTranspose", "Gemm")
_MOVES_VALUES: Final = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Identity")
_INT32: Final = np.iinfo(np.int32)


def quantize_biases(graph: ir.Graph) -> None:
    """Give every op with an int8 weight and a bias an int32 bias of its own; the graph is changed in place.

    A float bias that two ops share becomes two, since their input scales differ.

    Raises:
        ModelError: a bias does not fit int32, or its op reads no quantized input.
    """
    taken = set(graph.initializers)
    for node in _ops_with_bias(graph):
        weight_scale = constant(_dequantize(node, 1).inputs[1])
        scale = constant(_dequantize(node, 0).inputs[1]) * weight_scale
        bias = constant(node.inputs[2])
        scale = _per_channel(scale, bias.size)
        name = _unused(f"{_name(node)}.bias", taken)
        _replace_bias(graph, node, name, _codes(bias, scale, _name(node)), scale)
    _remove_unused_initializers(graph)


def _ops_with_bias(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in list(graph):
        if node.op_type not in _HAS_BIAS or len(node.inputs) < 3 or not is_constant(node.inputs[2]):
            continue
        source = _source(node, 1)
        if source is not None and source.op_type == DEQUANTIZE:
            yield node


def _dequantize(node: ir.Node, index: int) -> ir.Node:
    source = _source(node, index)
    if source is None or source.op_type != DEQUANTIZE:
        msg = f"node {_name(node)!r} has an int8 weight but no quantized input, so its bias has no scale; report it"
        raise ModelError(msg)
    return source


def _source(node: ir.Node, index: int) -> ir.Node | None:
    """Return what makes an input, behind ops that only move values."""
    value = node.inputs[index]
    producer = None if value is None else value.producer()
    while producer is not None and producer.op_type in _MOVES_VALUES:
        moved = producer.inputs[0]
        producer = None if moved is None else moved.producer()
    return producer


def _per_channel(scale: NDArray[Any], num_channels: int) -> NDArray[Any]:
    """Return one scale, or one for each output channel: a transposed convolution has one for each within a group."""
    return scale if scale.ndim == 0 else np.tile(scale, num_channels // scale.size)


def _codes(bias: NDArray[Any], scale: NDArray[Any], name: str) -> NDArray[np.int32]:
    codes = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    if not np.all(np.abs(codes) <= _INT32.max):
        msg = (
            f"the bias of node {name!r} does not fit int32: it has {np.abs(codes).max():.3g} steps of input scale "
            f"times weight scale, and at most {_INT32.max} fit; keep the node float (quantize.skip)"
        )
        raise ModelError(msg)
    return codes.astype(np.int32)


def _replace_bias(graph: ir.Graph, node: ir.Node, name: str, codes: NDArray[np.int32], scale: NDArray[Any]) -> None:
    inputs = [
        _initializer(graph, name, codes),
        _initializer(graph, f"{name}.scale", scale),
        _initializer(graph, f"{name}.zero_point", np.zeros(scale.shape, np.int32)),
    ]
    dequantize = ir.node(DEQUANTIZE, inputs, attributes={"axis": 0}, name=f"node_{name}", version=node.version)
    dequantize.outputs[0].name = f"{name}.dequantized"
    dequantize.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    dequantize.outputs[0].shape = ir.Shape(codes.shape)
    dequantize.meta["stamp"] = node.meta.get("stamp", {})
    graph.insert_before(node, dequantize)
    node.replace_input_with(2, dequantize.outputs[0])


def _initializer(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


def _remove_unused_initializers(graph: ir.Graph) -> None:
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]


def _name(node: ir.Node) -> str:
    return str(node.meta.get("stamp", {}).get("node") or node.outputs[0].name)


def _unused(name: str, taken: set[str]) -> str:
    free = name
    number = 2
    while free in taken:
        free, number = f"{name}.{number}", number + 1
    taken.add(free)
    return free
