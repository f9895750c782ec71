"""onednn: torch's oneDNN engine on x86-64; all but its depthwise kernels add pairs in int16 without VNNI."""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.record import Backend, KernelIsa, OpRule, Saturates, Support
from qtool.types import Granularity, Op

ONEDNN_INT8: Final = "https://uxlfoundation.github.io/oneDNN/dev_guide_int8_computations.html"
ONEDNN_ISA: Final = KernelIsa(
    vnni_flags=("avx_vnni", "avx512_vnni", "amx_int8"),
    cap_variable="ONEDNN_MAX_CPU_ISA",
    caps=(("SSE41", ()), ("AVX", ()), ("AVX2", ()), ("AVX512_CORE", ()), ("AVX2_VNNI", ("avx_vnni",))),
    source="https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html",
)
_PER_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)
_UNLESS: Final = "its input uses 0..127, or the CPU has VNNI (AVX-512 VNNI, AVX-VNNI or AMX)"

BACKEND: Final = Backend(
    name="onednn",
    title="oneDNN, x86-64",
    engine="onednn",
    runtime="torch",
    isa=ONEDNN_ISA,
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.WRONG_UNLESS,
            unless=_UNLESS,
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=ONEDNN_INT8,
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.WRONG_UNLESS,
            unless=_UNLESS,
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=ONEDNN_INT8,
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.WRONG_UNLESS,
            unless=_UNLESS,
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=ONEDNN_INT8,
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv.cpp",
)
