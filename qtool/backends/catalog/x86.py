"""x86: torch's default engine, which picks fbgemm or onednn per op by the CPU it finds: the worse of both."""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.catalog.onednn import ONEDNN_ISA
from qtool.backends.record import Backend, OpRule, Saturates, Support
from qtool.types import Granularity, Op

_PER_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)
_UNLESS_CONV: Final = "its input uses 0..127, or the CPU has VNNI and the convolution is not depthwise"

BACKEND: Final = Backend(
    name="x86",
    title="torch's x86 engine, x86-64",
    engine="x86",
    runtime="torch",
    isa=ONEDNN_ISA,
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.WRONG_UNLESS,
            unless=_UNLESS_CONV,
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            source=f"{ATEN}qconv_prepack.cpp",
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.WRONG_UNLESS,
            unless=_UNLESS_CONV,
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            note="it sends convolutions with more than 100 groups to fbgemm even where VNNI is there",
            source=f"{ATEN}qconv_prepack.cpp",
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has VNNI",
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=f"{ATEN}qlinear_prepack.cpp",
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv_prepack.cpp",
)
