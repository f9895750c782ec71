"""The ONNX operators for the ops that only a reference program has, and for some that must come out differently.

Functions are traced by torch.onnx: each call of an `op` appends a node.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - torch.onnx reads the annotations
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from qtool.passes import qdq_ops
from qtool.types import DTYPE_LIMITS, Dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Value: TypeAlias = Any
"""A value of the graph that is traced; torch.onnx takes arguments annotated with numbers for attributes."""

_CODES: Final = {ir.DataType.UINT8: Dtype.UINT8, ir.DataType.INT8: Dtype.INT8}


def quantize_per_tensor(x: Value, scale: float, zero_point: int, qmin: int, qmax: int, dtype: int) -> Value:
    """Return QuantizeLinear, and a Clip behind it where the range is smaller than the dtype's.

    QuantizeLinear clamps to its dtype alone. The Clip works on codes, so that QuantizeLinear stays next to the op
    before it and both are fused.
    """
    codes = op.QuantizeLinear(x, _scale(scale), _code(zero_point, dtype))
    if (qmin, qmax) == DTYPE_LIMITS[_CODES[ir.DataType(dtype)]]:
        return codes
    return op.Clip(codes, _code(qmin, dtype), _code(qmax, dtype))


def dequantize_per_tensor(codes: Value, scale: float, zero_point: int, qmin: int, qmax: int, dtype: int) -> Value:
    """Return DequantizeLinear with one scale."""
    return op.DequantizeLinear(codes, _scale(scale), _code(zero_point, dtype))


def dequantize_per_channel(
    codes: Value, scales: Value, zero_points: Value, axis: int, qmin: int, qmax: int, dtype: int
) -> Value:
    """Return DequantizeLinear with one scale per index of `axis`, counted from the front."""
    return op.DequantizeLinear(codes, scales, op.Cast(zero_points, to=dtype), axis=axis % len(codes.shape))


def linear(x: Value, weight: Value, bias: Value = None) -> Value:
    """Return Gemm over rows, whatever the rank of x: the one form of a linear that is fused with its bias.

    x is (..., I), weight (O, I), bias (O,).
    """
    parameters = (weight,) if bias is None else (weight, bias)
    if len(x.shape) == 2:
        return op.Gemm(x, *parameters, transB=1)
    rows = op.Reshape(x, _sizes([-1, weight.shape[1]]))
    return op.Reshape(op.Gemm(rows, *parameters, transB=1), _shape_of_rows(x, weight.shape[0]))


def conv3d(
    x: Value,
    weight: Value,
    bias: Value = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """Return Conv over three dimensions.

    onnxscript's own translation makes a bias of the wrong shape where there is none
    (onnxscript 0.7.2, function_libs/torch_lib/ops/core.py, aten_conv3d).
    """
    parameters = (weight,) if bias is None else (weight, bias)
    strides, pads, dilations = (_three(values) for values in (stride, padding, dilation))
    return op.Conv(x, *parameters, strides=strides, pads=[*pads, *pads], dilations=dilations, group=groups)


def _three(values: Sequence[int]) -> list[int]:
    return [*values] * 3 if len(values) == 1 else [*values]


def _shape_of_rows(x: Value, width: int) -> Value:
    """Return the shape (..., width); a constant where no more than one leading size is dynamic."""
    leading = [size if isinstance(size, int) else -1 for size in x.shape[:-1]]
    if leading.count(-1) <= 1:
        return _sizes([*leading, width])
    return op.Concat(op.Shape(x, start=0, end=-1), _sizes([width]), axis=0)


def _scale(scale: float) -> Value:
    return _constant(np.array(scale, dtype=np.float32))


def _sizes(sizes: list[int]) -> Value:
    return _constant(np.array(sizes, dtype=np.int64))


def _code(code: int, dtype: int) -> Value:
    return _constant(np.array(code, dtype=_CODES[ir.DataType(dtype)].value))


def _constant(array: NDArray[Any]) -> Value:
    tensor: Any = ir.tensor(array)  # onnxscript is annotated for onnx's own tensors, and takes both
    return op.Constant(value=tensor)


TRANSLATIONS: Final[dict[Any, Callable[..., Any]]] = {
    qdq_ops.quantize_per_tensor: quantize_per_tensor,
    qdq_ops.dequantize_per_tensor: dequantize_per_tensor,
    qdq_ops.dequantize_per_channel: dequantize_per_channel,
    torch.ops.aten.linear.default: linear,
    torch.ops.aten.conv3d.default: conv3d,
}
"""By ATen op, for `torch.onnx.export(custom_translation_table=...)`."""
