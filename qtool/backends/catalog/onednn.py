"""onednn: torch's oneDNN engine on x86-64.

Without VNNI all kernels but the depthwise one add pairs in int16. Depthwise means one output channel in each group:
with more of them, or with a single group, AVX-512 without VNNI saturates like any convolution.

Weights lie in blocks of four input channels at one kernel position, so neighbouring channels meet in int16. With fewer
channels than a block its matrix kernels may take the row of a window as one dimension ("relo"), so any two may meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qtool.backends.catalog.aten_ops import (
    ATEN,
    ATEN_RULES,
    CHANNEL_FIRST,
    CLAMPS,
    MEASURED_MACS,
    MEASURED_TRANSPOSED,
)
from qtool.backends.record import Backend, IsaCap, KernelIsa, OpRule, Pairing, Saturates, Support
from qtool.types import Op

ONEDNN: Final = "https://github.com/uxlfoundation/oneDNN/blob/main/"
ONEDNN_CAP: Final = IsaCap(
    variables=("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
    usable=(
        ("SSE41", ()),
        ("AVX", ()),
        ("AVX2", ()),
        ("AVX2_VNNI", ("avx_vnni",)),
        ("AVX2_VNNI_2", ("avx_vnni",)),
        ("AVX512_CORE", ()),
        ("AVX512_CORE_VNNI", ("avx512_vnni",)),
        ("AVX512_CORE_BF16", ("avx512_vnni",)),
    ),
    source=f"{ONEDNN}src/cpu/x64/cpu_isa_traits.cpp",
)
_INT8: Final = f"{ONEDNN}doc/advanced/int8_computations.md"
_UNLESS: Final = "its input uses 0..127, or the CPU has VNNI (AVX-512 VNNI, AVX-VNNI or AMX)"
_LINEAR: Final = OpRule(
    op=Op.LINEAR,
    support=Support.WRONG_UNLESS,
    unless=_UNLESS,
    granularities=CHANNEL_FIRST,
    saturates=Saturates.WITHOUT_VNNI,
    pairings=(Pairing.CHANNELS,),
    fused_activations=CLAMPS,
    source=_INT8,
    measured=MEASURED_MACS,
)
_CONV: Final = replace(_LINEAR, op=Op.CONV2D, unless=f"{_UNLESS}, or it is depthwise")
ONEDNN_TRANSPOSED: Final = tuple(
    OpRule(
        op=op,
        support=Support.UNSUPPORTED,
        note="the packed kernel is wrong where input and output channels differ; plain tensors have none",
        source=f"{ATEN}qconv.cpp",
        measured=MEASURED_TRANSPOSED,
    )
    for op in (Op.CONV_TRANSPOSE1D, Op.CONV_TRANSPOSE2D)
)

BACKEND: Final = Backend(
    name="onednn",
    title="oneDNN, x86-64",
    engine="onednn",
    runtime="torch",
    isa=KernelIsa(
        vnni_flags=("avx_vnni", "avx512_vnni", "amx_int8"),
        caps=(ONEDNN_CAP,),
        source=f"{ONEDNN}src/cpu/x64/cpu_isa_traits.cpp",
    ),
    rules=(
        replace(_CONV, op=Op.CONV1D),
        _CONV,
        replace(
            _CONV,
            op=Op.CONV3D,
            note="depthwise ones run on the reference kernel, which is exact and slow",
            source=f"{ONEDNN}src/cpu/x64/jit_avx512_core_x8s8s32x_conv_kernel.cpp",
        ),
        *ONEDNN_TRANSPOSED,
        _LINEAR,
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv.cpp",
)
