"""ONNX operators as data: which pattern of qtool's each is, and where its tensors, scales and zero points stand.

Source: docs/Operators.md of onnx 1.23, docs/ContribOperators.md of ONNX Runtime 1.32 (domain `com.microsoft`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qtool.readers.facts import Compute
from qtool.types import Op

KNOWN_DOMAINS: Final = frozenset({
    "", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc",
    "com.ms.internal.nhwc",
})  # fmt: skip
"""Whose operators are known: those that are in no table below hold no layer, or none that is quantized."""

QUANTIZE: Final = "QuantizeLinear"
DEQUANTIZE: Final = "DequantizeLinear"
DYNAMIC_QUANTIZE: Final = "DynamicQuantizeLinear"
CLIP: Final = "Clip"

MOVES: Final = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout"})
"""Ops that only move values, so that codes and scales stay what they are."""

CAST: Final = "Cast"
MATRIX_PRODUCTS: Final = ("MatMul", "MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "FusedMatMul",
                          "DynamicQuantizeMatMul")  # fmt: skip
GEMMS: Final = ("Gemm", "QGemm", "FusedGemm")
CONVOLUTIONS: Final = {
    "Conv": (Op.CONV1D, Op.CONV2D, Op.CONV3D),
    "ConvTranspose": (Op.CONV_TRANSPOSE1D, Op.CONV_TRANSPOSE2D),
}
"""Patterns by the number of dimensions; other convolutions are named after these, as `QLinearConv`."""


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """Where a float operator has its parameters.

    Attributes:
        weights: indexes of inputs that may be stored.
        bias: index of the bias; None if it has none.
    """

    weights: tuple[int, ...]
    bias: int | None = None


WEIGHTED: Final = {
    "Conv": Weighted(weights=(1,), bias=2),
    "FusedConv": Weighted(weights=(1,), bias=2),
    "ConvTranspose": Weighted(weights=(1,), bias=2),
    "Gemm": Weighted(weights=(1, 0), bias=2),
    "FusedGemm": Weighted(weights=(1,), bias=2),
    "MatMul": Weighted(weights=(1, 0)),
    "FusedMatMul": Weighted(weights=(1,)),
    "Gather": Weighted(weights=(0,)),
    "LSTM": Weighted(weights=(1, 2), bias=3),
    "GRU": Weighted(weights=(1, 2), bias=3),
    "RNN": Weighted(weights=(1, 2), bias=3),
    "PRelu": Weighted(weights=(1,)),
    "BatchNormalization": Weighted(weights=(1,), bias=2),
    "InstanceNormalization": Weighted(weights=(1,), bias=2),
    "GroupNormalization": Weighted(weights=(1,), bias=2),
    "LayerNormalization": Weighted(weights=(1,), bias=2),
    "SimplifiedLayerNormalization": Weighted(weights=(1,)),
    "SkipLayerNormalization": Weighted(weights=(2,), bias=3),
    "Attention": Weighted(weights=(1,), bias=2),
}
"""Float operators with weights. Between DequantizeLinear and QuantizeLinear they run on codes."""

ALWAYS_WEIGHTED: Final = frozenset({"Conv", "FusedConv", "ConvTranspose", "LSTM", "GRU", "RNN"})
"""Those of them whose second input is a weight even where it is not stored."""

PATTERNS: Final = {
    "Add": Op.ADD, "Mul": Op.MUL, "Concat": Op.CAT, "MaxPool": Op.MAX_POOL, "AveragePool": Op.AVG_POOL,
    "GlobalAveragePool": Op.AVG_POOL, "ReduceMean": Op.MEAN, "Resize": Op.INTERPOLATE, "Upsample": Op.INTERPOLATE,
    "Relu": Op.ACTIVATION, "Clip": Op.ACTIVATION, "Sigmoid": Op.SIGMOID, "HardSigmoid": Op.HARDSIGMOID,
    "Tanh": Op.TANH, "Softmax": Op.SOFTMAX, "HardSwish": Op.HARDSWISH, "LeakyRelu": Op.LEAKY_RELU,
    "Reshape": Op.LAYOUT, "Flatten": Op.LAYOUT, "Squeeze": Op.LAYOUT, "Unsqueeze": Op.LAYOUT, "Transpose": Op.LAYOUT,
    "Slice": Op.LAYOUT, "Split": Op.LAYOUT, "Pad": Op.LAYOUT, "Expand": Op.LAYOUT, "Tile": Op.LAYOUT,
    "Gather": Op.LAYOUT, "GatherND": Op.LAYOUT, "DepthToSpace": Op.LAYOUT, "SpaceToDepth": Op.LAYOUT,
}  # fmt: skip
"""Patterns of operators without weights."""

KEEPS_CODES: Final = frozenset({"MaxPool", "Slice", "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", *MOVES})
"""Ops on codes whose results have the scale and zero point of their first input."""

Triple = tuple[int, int | None, int | None]
"""Indexes of a tensor's codes, its scale and its zero point among a node's inputs."""


@dataclass(frozen=True, kw_only=True)
class Integer:
    """Where an operator on codes has its tensors.

    Attributes:
        op: qtool's pattern; None where there is none, or where it follows from the weight.
        compute: how it computes; STATIC becomes DYNAMIC where a scale is no constant.
        inputs: its inputs; without scale and zero point where they are floats, or known from who made the codes.
        weights: of these, those that are weights if they are stored.
        bias: index of the bias.
        output: indexes of scale and zero point of the result; None if it is no code.
        output_dtype: of the codes, where an omitted zero point leaves it open.
        is_in_out: its weight is stored as (in, out).
        channel_axis: along which a weight with several scales has them; None for the first of a convolution's.
    """

    op: Op | None = None
    compute: Compute = Compute.STATIC
    inputs: tuple[Triple, ...] = ()
    weights: tuple[Triple, ...] = ()
    bias: int | None = None
    output: tuple[int, int] | None = None
    is_in_out: bool = False
    channel_axis: int = 0


def _unary(op: Op | None) -> Integer:
    return Integer(op=op, inputs=((0, 1, 2),), output=(3, 4))


def _binary(op: Op | None) -> Integer:
    return Integer(op=op, inputs=((0, 1, 2), (3, 4, 5)), output=(6, 7))


INTEGER: Final = {
    "QLinearConv": Integer(inputs=((0, 1, 2),), weights=((3, 4, 5),), bias=8, output=(6, 7)),
    "QLinearConvTranspose": Integer(inputs=((0, 1, 2),), weights=((3, 4, 5),), bias=8, output=(6, 7), channel_axis=1),
    "QLinearMatMul": Integer(
        op=Op.LINEAR, inputs=((0, 1, 2),), weights=((3, 4, 5),), output=(6, 7), is_in_out=True, channel_axis=-1
    ),
    "QGemm": Integer(op=Op.LINEAR, inputs=((0, 1, 2),), weights=((3, 4, 5),), bias=6, output=(7, 8), channel_axis=-1),
    "QLinearAdd": _binary(Op.ADD),
    "QLinearMul": _binary(Op.MUL),
    "QLinearSigmoid": _unary(Op.SIGMOID),
    "QLinearLeakyRelu": _unary(Op.LEAKY_RELU),
    "QLinearSoftmax": _unary(Op.SOFTMAX),
    "QLinearAveragePool": _unary(Op.AVG_POOL),
    "QLinearGlobalAveragePool": _unary(Op.AVG_POOL),
    "QLinearReduceMean": _unary(Op.MEAN),
    "QLinearWhere": Integer(inputs=((1, 2, 3), (4, 5, 6)), output=(7, 8)),
    "QLinearConcat": Integer(op=Op.CAT, output=(0, 1)),
    "ConvInteger": Integer(inputs=((0, None, 2),), weights=((1, None, 3),)),
    "MatMulInteger": Integer(
        op=Op.LINEAR, inputs=((0, None, 2),), weights=((1, None, 3),), is_in_out=True, channel_axis=-1
    ),
    "MatMulIntegerToFloat": Integer(
        op=Op.LINEAR, inputs=((0, 2, 4),), weights=((1, 3, 5),), bias=6, is_in_out=True, channel_axis=-1
    ),
    "DynamicQuantizeMatMul": Integer(
        op=Op.LINEAR,
        compute=Compute.DYNAMIC,
        inputs=((0, None, None),),
        weights=((1, 2, 3),),
        bias=4,
        is_in_out=True,
        channel_axis=-1,
    ),
    "QAttention": Integer(inputs=((0, 3, 6),), weights=((1, 4, 7),), bias=2, is_in_out=True, channel_axis=-1),
    "DynamicQuantizeLSTM": Integer(
        compute=Compute.DYNAMIC,
        inputs=((0, None, None),),
        weights=((1, 8, 9), (2, 10, 11)),
        bias=3,
        is_in_out=True,
        channel_axis=-1,
    ),
}
"""Operators that compute on codes."""


@dataclass(frozen=True, kw_only=True)
class Blockwise:
    """Where an operator has a weight whose codes of 2 to 8 bits have a scale for each block of neighbours.

    Attributes:
        op: qtool's pattern; None where there is none.
        weight: indexes of codes, scales and zero points.
        inputs: indexes of what it computes with.
        bias: index of the bias.
    """

    op: Op | None
    weight: tuple[int, int, int]
    inputs: tuple[int, ...]
    bias: int | None = None


BLOCKWISE: Final = {
    "MatMulNBits": Blockwise(op=Op.LINEAR, weight=(1, 2, 3), inputs=(0,), bias=5),
    "GatherBlockQuantized": Blockwise(op=None, weight=(0, 2, 3), inputs=()),
}

NOT_READ: Final = frozenset({
    "MatMulBnb4", "QMoE", "QOrderedAttention", "QOrderedGelu", "QOrderedLayerNormalization",
    "QOrderedLongformerAttention", "QOrderedMatMul", "QEmbedLayerNormalization", "QuantizeWithOrder",
    "DequantizeWithOrder", "DequantizeBFP", "QuantizeBFP", "MatMulFpQ4",
})  # fmt: skip
"""Operators on codes that are in none of these tables."""

COMPILED: Final = frozenset({"EPContext"})
"""Operators that hold what was compiled for a device, or the path of a file with it."""

CALLS_PYTHON: Final = frozenset({"PythonOp", "PythonOpGrad"})
"""Operators of ONNX Runtime's training builds that call a Python function by its name."""
