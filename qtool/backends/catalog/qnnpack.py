"""qnnpack: torch's engine for phones; it widens to int16 before multiplying, so it is exact everywhere."""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.record import Backend, OpRule, Support
from qtool.types import Granularity, Op

QNNPACK: Final = f"{ATEN}qnnpack/src/"
_PER_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)

BACKEND: Final = Backend(
    name="qnnpack",
    title="QNNPACK, phones and any x86-64",
    engine="qnnpack",
    runtime="torch",
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=f"{QNNPACK}q8gemm/4x4c2-sse2.c",
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=f"{QNNPACK}q8conv/4x4c2-sse2.c",
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=f"{QNNPACK}q8gemm/4x4c2-sse2.c",
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qnnpack/README.md",
)
