"""fbgemm: torch's x86 engine for servers; every kernel adds pairs in int16 unless it found AVX-512 VNNI."""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.record import Backend, KernelIsa, OpRule, Saturates, Support
from qtool.types import Granularity, Op

FBGEMM: Final = "https://github.com/pytorch/FBGEMM/blob/main/src/"
_PER_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)

BACKEND: Final = Backend(
    name="fbgemm",
    title="FBGEMM, x86-64 servers",
    engine="fbgemm",
    runtime="torch",
    isa=KernelIsa(
        vnni_flags=("avx512_vnni",),
        cap_variable="FBGEMM_ENABLE_INSTRUCTIONS",
        caps=(("AVX2", ()), ("AVX512", ()), ("AVX512_256", ())),
        source=f"{FBGEMM}Utils.cc",
    ),
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI and the convolution is not depthwise",
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            source=f"{FBGEMM}GenerateKernelU8S8S32ACC32.cc",
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI and the convolution is not depthwise",
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            source=f"{FBGEMM}GenerateI8Depthwise.cc",
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_PER_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=f"{FBGEMM}GenerateKernelU8S8S32ACC32.cc",
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv.cpp",
)
