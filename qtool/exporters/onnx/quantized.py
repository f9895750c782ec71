"""Reads the quantized edges of an ONNX graph: scales, zero points, and the codes an edge can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qtool.types import DTYPE_LIMITS, Dtype

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import NDArray

QUANTIZE = "QuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
CLIP = "Clip"


@dataclass(frozen=True)
class CodeGrid:
    """The grid that a QuantizeLinear and the Clip behind it round to.

    Attributes:
        scale: float32, > 0.
        zero_point: the code of 0.0.
        qmin: the smallest code that comes out.
        qmax: the largest code that comes out.
    """

    scale: np.float32
    zero_point: int
    qmin: int
    qmax: int

    def code(self, value: float) -> int:
        """Return the code of a value, as ONNX rounds it: half to even, then clamped.

        Example:
            >>> CodeGrid(np.float32(0.5), 3, 0, 127).code(6.0)
            15
        """
        steps = np.rint(np.float32(value) / self.scale) + self.zero_point
        return int(np.clip(steps, self.qmin, self.qmax))


def code_grid(quantize: ir.Node) -> CodeGrid:
    """Return the grid of a QuantizeLinear with one scale."""
    zero_point = constant(quantize.inputs[2])
    qmin, qmax = DTYPE_LIMITS[Dtype(zero_point.dtype.name)]
    clip = clip_behind(quantize)
    if clip is not None:
        qmin, qmax = int(constant(clip.inputs[1])), int(constant(clip.inputs[2]))
    return CodeGrid(np.float32(constant(quantize.inputs[1])), int(zero_point), qmin, qmax)


def clip_behind(quantize: ir.Node) -> ir.Node | None:
    """Return the Clip that keeps a QuantizeLinear's codes in a smaller range; None where it is the dtype's own."""
    consumers = quantize.outputs[0].consumers()
    return consumers[0] if len(consumers) == 1 and consumers[0].op_type == CLIP else None


def constant(value: ir.Value | None) -> NDArray[Any]:
    """Return the array of an initializer."""
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is an initializer."""
    return value is not None and value.const_value is not None
