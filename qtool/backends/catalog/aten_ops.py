"""Rules for the ops without weight: the torch engines share ATen's kernels for them."""

from __future__ import annotations

from typing import Final

from qtool.backends.record import OpRule, Support
from qtool.types import Op

ATEN: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/quantized/cpu/"
"""Where the sources of torch's quantized CPU kernels live."""

CLAMPS: Final = ("relu", "relu6", "hardtanh")
"""Activations that are a clamp of the output's codes, so they fuse into any op with output parameters of its own."""

ATEN_RULES: Final = (
    OpRule(op=Op.ADD, support=Support.EQUAL, fused_activations=CLAMPS, source=f"{ATEN}BinaryOps.cpp"),
    OpRule(op=Op.MUL, support=Support.EQUAL, fused_activations=CLAMPS, source=f"{ATEN}qmul.cpp"),
    OpRule(
        op=Op.CAT,
        support=Support.EQUAL,
        fused_activations=CLAMPS,
        shares_input_parameters=True,
        source=f"{ATEN}TensorShape.cpp",
    ),
    OpRule(op=Op.MAX_POOL, support=Support.EQUAL, shares_input_parameters=True, source=f"{ATEN}Pooling.cpp"),
    OpRule(op=Op.AVG_POOL, support=Support.EQUAL, source=f"{ATEN}AveragePool2d.cpp"),
    OpRule(op=Op.MEAN, support=Support.EQUAL, source=f"{ATEN}ReduceOps.cpp"),
    OpRule(op=Op.ACTIVATION, support=Support.EQUAL, shares_input_parameters=True, source=f"{ATEN}qclamp.cpp"),
    OpRule(op=Op.LAYOUT, support=Support.EQUAL, shares_input_parameters=True, source=f"{ATEN}TensorOperators.cpp"),
)
