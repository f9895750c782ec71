"""x86: torch's default engine, which picks fbgemm or oneDNN per op by the CPU it finds: the worse of both.

It takes oneDNN where the CPU has AVX-512 VNNI and the convolution at most 100 groups, and fbgemm elsewhere; so both
libraries' caps count, and AVX-VNNI alone does not help.
"""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.catalog.fbgemm import FBGEMM_CAP, FBGEMM_OVERRUN, FBGEMM_OVERRUN_3D
from qtool.backends.catalog.onednn import ONEDNN_CAP, ONEDNN_TRANSPOSED
from qtool.backends.record import Backend, KernelIsa, OpRule, Saturates, Support
from qtool.types import Granularity, Op

_CHOICE: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/quantized/cpu/OnednnUtils.h"
_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)
_MEASURED: Final = "tests/backends/test_kernel_saturation.py"

BACKEND: Final = Backend(
    name="x86",
    title="torch's x86 engine, x86-64",
    engine="x86",
    runtime="torch",
    isa=KernelIsa(vnni_flags=("avx512_vnni",), caps=(FBGEMM_CAP, ONEDNN_CAP), source=_CHOICE),
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=_CHOICE,
            measured=_MEASURED,
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI and it is not depthwise",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            faults=(FBGEMM_OVERRUN,),
            note="more than 100 groups go to fbgemm's depthwise kernel, which saturates with VNNI too",
            source=_CHOICE,
            measured=_MEASURED,
        ),
        OpRule(
            op=Op.CONV3D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI and it is not depthwise",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.ALWAYS,
            fused_activations=CLAMPS,
            faults=(FBGEMM_OVERRUN_3D,),
            note="more than 100 groups go to fbgemm's depthwise kernel, which saturates with VNNI too",
            source=_CHOICE,
            measured=_MEASURED,
        ),
        *ONEDNN_TRANSPOSED,
        OpRule(
            op=Op.LINEAR,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=_CHOICE,
            measured=_MEASURED,
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv_prepack.cpp",
)
