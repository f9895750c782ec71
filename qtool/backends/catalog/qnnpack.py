"""qnnpack: torch's engine for phones; it widens to int16 before it multiplies, so its sums are exact everywhere.

Its pooling and clamp kernels have faults; ATen's own are right, and torch takes those whenever its global engine is
another one. Packed convolutions and linears carry their engine, so they need no global engine when they run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qtool.backends.catalog.aten_ops import (
    ATEN,
    ATEN_ACTIVATION,
    ATEN_ADD,
    ATEN_AVG_POOL,
    ATEN_CAT,
    ATEN_FUNCTIONS,
    ATEN_INTERPOLATE,
    ATEN_LAYOUT,
    ATEN_MAX_POOL,
    ATEN_MEAN,
    ATEN_MUL,
    CHANNEL_FIRST,
    CLAMPS,
    MEASURED_MACS,
    MEASURED_TRANSPOSED,
)
from qtool.backends.record import Backend, OpRule, Support
from qtool.types import Op

QNNPACK: Final = f"{ATEN}qnnpack/src/"
_OTHER_ENGINE: Final = "torch.backends.quantized.engine is another one while it runs"
_LINEAR: Final = OpRule(
    op=Op.LINEAR,
    support=Support.EQUAL,
    granularities=CHANNEL_FIRST,
    fused_activations=CLAMPS,
    source=f"{QNNPACK}q8gemm/4x4c2-sse2.c",
    measured=MEASURED_MACS,
)
_CONV: Final = replace(_LINEAR, op=Op.CONV2D, source=f"{QNNPACK}q8conv/4x4c2-sse2.c")
_CONV_TRANSPOSE: Final = replace(
    _LINEAR, op=Op.CONV_TRANSPOSE2D, source=f"{QNNPACK}deconv-run.cc", measured=MEASURED_TRANSPOSED
)

BACKEND: Final = Backend(
    name="qnnpack",
    title="QNNPACK, phones and any x86-64",
    engine="qnnpack",
    runtime="torch",
    rules=(
        replace(_LINEAR, op=Op.CONV1D),
        _CONV,
        replace(_CONV, op=Op.CONV3D),
        replace(_CONV_TRANSPOSE, op=Op.CONV_TRANSPOSE1D),
        _CONV_TRANSPOSE,
        _LINEAR,
        ATEN_ADD,
        ATEN_MUL,
        ATEN_CAT,
        replace(ATEN_MAX_POOL, support=Support.WRONG_UNLESS, unless=f"its dilation is 1, or {_OTHER_ENGINE}"),
        replace(
            ATEN_AVG_POOL,
            support=Support.WRONG_UNLESS,
            unless=f"it has no padding or counts it (count_include_pad), or {_OTHER_ENGINE}",
        ),
        ATEN_MEAN,
        ATEN_INTERPOLATE,
        replace(
            ATEN_ACTIVATION,
            support=Support.WRONG_UNLESS,
            unless=f"it is relu, its tensor is not channels_last, or {_OTHER_ENGINE}",
        ),
        ATEN_LAYOUT,
        *ATEN_FUNCTIONS,
    ),
    source=f"{ATEN}qnnpack/README.md",
)
