"""Rules for the ops without weight: the torch engines share ATen's kernels for them."""

from __future__ import annotations

from typing import Final

from qtool.backends.record import OpRule, Support
from qtool.types import Granularity, Op

ATEN: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/quantized/cpu/"
"""Where the sources of torch's quantized CPU kernels live."""

CLAMPS: Final = ("relu", "relu6", "hardtanh")
"""Activations that are a clamp of the output's codes, so they fuse into any op with output parameters of its own."""

CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)
"""One scale for each output channel, or one for the weight: what most kernels can do."""

MEASURED_MACS: Final = "tests/backends/test_kernel_saturation.py"
MEASURED_TRANSPOSED: Final = "tests/backends/test_transposed.py"
_MEASURED: Final = "tests/backends/test_value_ops.py"

ATEN_ADD: Final = OpRule(
    op=Op.ADD,
    support=Support.EQUAL,
    fused_activations=CLAMPS,
    source=f"{ATEN}BinaryOps.cpp",
    measured=_MEASURED,
)
ATEN_MUL: Final = OpRule(
    op=Op.MUL,
    support=Support.EQUAL,
    fused_activations=CLAMPS,
    source=f"{ATEN}qmul.cpp",
    measured=_MEASURED,
)
ATEN_CAT: Final = OpRule(
    op=Op.CAT,
    support=Support.EQUAL,
    fused_activations=CLAMPS,
    source=f"{ATEN}TensorShape.cpp",
    measured=_MEASURED,
)
ATEN_MAX_POOL: Final = OpRule(
    op=Op.MAX_POOL,
    support=Support.EQUAL,
    source=f"{ATEN}Pooling.cpp",
    measured=_MEASURED,
)
ATEN_AVG_POOL: Final = OpRule(
    op=Op.AVG_POOL, support=Support.EQUAL, source=f"{ATEN}AveragePool2d.cpp", measured=_MEASURED
)
ATEN_MEAN: Final = OpRule(op=Op.MEAN, support=Support.EQUAL, source=f"{ATEN}ReduceOps.cpp", measured=_MEASURED)
ATEN_ACTIVATION: Final = OpRule(
    op=Op.ACTIVATION,
    support=Support.EQUAL,
    source=f"{ATEN}qclamp.cpp",
    measured=_MEASURED,
)
ATEN_LAYOUT: Final = OpRule(op=Op.LAYOUT, support=Support.EQUAL, source=f"{ATEN}TensorOperators.cpp")

_FIXED: Final = "its output has a fixed scale and zero point"

ATEN_INTERPOLATE: Final = OpRule(
    op=Op.INTERPOLATE, support=Support.EQUAL, source=f"{ATEN}UpSampleBilinear2d.cpp", measured=_MEASURED
)
ATEN_FUNCTIONS: Final = (
    OpRule(op=Op.SIGMOID, support=Support.EQUAL, note=_FIXED, source=f"{ATEN}qsigmoid.cpp", measured=_MEASURED),
    OpRule(op=Op.HARDSIGMOID, support=Support.EQUAL, note=_FIXED, source=f"{ATEN}qhardsigmoid.cpp", measured=_MEASURED),
    OpRule(op=Op.TANH, support=Support.EQUAL, note=_FIXED, source=f"{ATEN}qtanh.cpp", measured=_MEASURED),
    OpRule(op=Op.SOFTMAX, support=Support.EQUAL, note=_FIXED, source=f"{ATEN}qsoftmax.cpp", measured=_MEASURED),
    OpRule(op=Op.HARDSWISH, support=Support.EQUAL, source=f"{ATEN}qhardswish.cpp", measured=_MEASURED),
    OpRule(op=Op.LEAKY_RELU, support=Support.EQUAL, source=f"{ATEN}qrelu.cpp", measured=_MEASURED),
)
"""Functions of one value, and softmax."""

ATEN_RULES: Final = (
    ATEN_ADD,
    ATEN_MUL,
    ATEN_CAT,
    ATEN_MAX_POOL,
    ATEN_AVG_POOL,
    ATEN_MEAN,
    ATEN_INTERPOLATE,
    ATEN_ACTIVATION,
    ATEN_LAYOUT,
    *ATEN_FUNCTIONS,
)
