"""The ONNX operators for the ops that only a reference program has, and for linear in the form ONNX Runtime fuses.

Functions are traced by torch.onnx: each call of an `op` appends a node.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from qtool.passes import qdq_ops
from qtool.types import DTYPE_LIMITS, Dtype

if TYPE_CHECKING:
    from collections.abc import Callable

_CODES: Final = {ir.DataType.UINT8: (np.uint8, Dtype.UINT8), ir.DataType.INT8: (np.int8, Dtype.INT8)}


def quantize_per_tensor(x, scale: float, zero_point: int, qmin: int, qmax: int, dtype: int):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - torch.onnx reads annotations as ONNX types
    """Return QuantizeLinear, and a Clip behind it where the range is smaller than the dtype's.

    QuantizeLinear clamps to its dtype alone. The Clip works on codes, so that QuantizeLinear stays next to the op
    before it and both are fused.
    """
    codes = op.QuantizeLinear(x, _number(scale, np.float32), _code(zero_point, dtype))
    if (qmin, qmax) == DTYPE_LIMITS[_CODES[ir.DataType(dtype)][1]]:
        return codes
    return op.Clip(codes, _code(qmin, dtype), _code(qmax, dtype))


def dequantize_per_tensor(codes, scale: float, zero_point: int, qmin: int, qmax: int, dtype: int):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG001
    """Return DequantizeLinear with one scale."""
    return op.DequantizeLinear(codes, _number(scale, np.float32), _code(zero_point, dtype))


def dequantize_per_channel(codes, scales, zero_points, axis: int, qmin: int, qmax: int, dtype: int):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201, ARG001
    """Return DequantizeLinear with one scale per index of `axis`, counted from the front."""
    return op.DequantizeLinear(codes, scales, op.Cast(zero_points, to=dtype), axis=axis % len(codes.shape))


def linear(x, weight, bias=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Return Gemm over rows, whatever the rank of x: the one form of a linear that is fused with its bias.

    x is (..., I), weight (O, I), bias (O,).
    """
    inputs = (x, weight) if bias is None else (x, weight, bias)
    if len(x.shape) == 2:
        return op.Gemm(*inputs, transB=1)
    rows = op.Reshape(x, _numbers([-1, weight.shape[1]]))
    y = op.Gemm(rows, *inputs[1:], transB=1)
    return op.Reshape(y, _shape_of_rows(x, int(weight.shape[0])))


def _shape_of_rows(x: Any, width: int) -> Any:  # noqa: ANN401 - a value of the traced graph
    """Return the shape (..., width); a constant where no more than one leading size is dynamic."""
    leading = [size if isinstance(size, int) else -1 for size in x.shape[:-1]]
    if leading.count(-1) <= 1:
        return _numbers([*leading, width])
    return op.Concat(op.Shape(x, start=0, end=-1), _numbers([width]), axis=0)


def _number(value: float, dtype: type[np.generic]) -> Any:  # noqa: ANN401
    return op.Constant(value=ir.tensor(np.array(value, dtype=dtype)))


def _numbers(values: list[int]) -> Any:  # noqa: ANN401
    return op.Constant(value=ir.tensor(np.array(values, dtype=np.int64)))


def _code(value: int, dtype: int) -> Any:  # noqa: ANN401
    return _number(value, _CODES[ir.DataType(dtype)][0])


TRANSLATIONS: Final[dict[Any, Callable[..., Any]]] = {
    qdq_ops.quantize_per_tensor: quantize_per_tensor,
    qdq_ops.dequantize_per_tensor: dequantize_per_tensor,
    qdq_ops.dequantize_per_channel: dequantize_per_channel,
    torch.ops.aten.linear.default: linear,
}
"""By ATen op, for `torch.onnx.export(custom_translation_table=...)`."""
