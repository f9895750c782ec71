"""Remove clamps: a relu, relu6 or hardtanh goes where the QuantizeLinear behind it clamps at the same codes.

Between the two ONNX Runtime would fuse neither. Rounding is monotone, so with bounds low and high

    q(low) = qmin and q(high) = qmax   =>   q(clamp(x, low, high)) = q(x)   for every x

and the clamp changes no code. Where that does not hold (a relu before symmetric int8 codes, whose zero point is not
the lower end) it stays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qtool.exporters.onnx.quantized import CLIP, QUANTIZE, code_grid, constant, is_constant

if TYPE_CHECKING:
    import onnx_ir as ir


def remove_repeated_clamps(graph: ir.Graph) -> None:
    """Remove the clamps that the quantize behind them repeats; the graph is changed in place."""
    for quantize in [node for node in graph if node.op_type == QUANTIZE]:
        value = quantize.inputs[0]
        assert value is not None
        clamp = value.producer()
        if clamp is None or len(value.uses()) > 1 or value.is_graph_output():
            continue
        bounds = _bounds(clamp)
        if bounds is None:
            continue
        grid = code_grid(quantize)
        low, high = bounds
        if grid.code(low) == grid.qmin and grid.code(high) == grid.qmax:
            quantize.replace_input_with(0, clamp.inputs[0])
            graph.remove(clamp, safe=True)


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return where an op clamps floats, infinite where it does not; None for another op."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    if node.op_type != CLIP:
        return None
    ends = [*node.inputs[1:], None, None][:2]
    if not all(end is None or is_constant(end) for end in ends):
        return None
    low, high = ends
    return (
        -math.inf if low is None else float(constant(low)),
        math.inf if high is None else float(constant(high)),
    )
