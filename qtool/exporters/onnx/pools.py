"""An average pool without padding says so: ONNX Runtime's int8 kernel counts what hangs over the edge as padding.

Seen in ONNX Runtime 1.32, QLinearAveragePool with `ceil_mode` and `count_include_pad`; its float kernel is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def count_no_padding(graph: ir.Graph) -> None:
    """Remove `count_include_pad` from each AveragePool that pads nothing, in place: the result is the same by ONNX."""
    for node in graph:
        if node.op_type == "AveragePool" and not any(node.attributes.get_ints("pads", ())):
            node.attributes.pop("count_include_pad", None)
