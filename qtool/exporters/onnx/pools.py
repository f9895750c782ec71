"""Average pools that hang over the edge: ONNX Runtime's int8 kernel counts what does as padding.

Seen in ONNX Runtime 1.32, QLinearAveragePool with `ceil_mode` and `count_include_pad`. Its float kernel is right, but
it takes the int8 one for every pool between dequantize and quantize. Without padding there is nothing to count, and
the model says so; with padding there is no way to say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.errors import ModelError
from qtool.exporters.onnx.quantized import DEQUANTIZE

if TYPE_CHECKING:
    import onnx_ir as ir


def count_no_padding(graph: ir.Graph) -> None:
    """Remove `count_include_pad` from each AveragePool that pads nothing, in place: the result is the same by ONNX.

    Raises:
        ModelError: a pool between codes pads, counts its padding, and hangs over the edge.
    """
    for node in graph:
        if node.op_type != "AveragePool":
            continue
        if not any(node.attributes.get_ints("pads", ())):
            node.attributes.pop("count_include_pad", None)
        elif node.attributes.get_int("count_include_pad", 0) and node.attributes.get_int("ceil_mode", 0):
            _check_is_float(node)


def _check_is_float(node: ir.Node) -> None:
    value = node.inputs[0]
    producer = None if value is None else value.producer()
    if producer is not None and producer.op_type == DEQUANTIZE:
        name = node.meta.get("stamp", {}).get("node") or node.outputs[0].name
        msg = (
            f"{name!r} is an average pool with padding, ceil_mode and count_include_pad, which ONNX Runtime computes "
            f"wrong on codes; set one of the three otherwise in the model, or run it in torch"
        )
        raise ModelError(msg)
