"""fbgemm: torch's x86 engine for servers.

Every kernel adds pairs in int16 unless it finds AVX-512 VNNI (AVX-VNNI alone is not used). The depthwise kernel does
so even there: 2-d, as many groups as input channels (a multiple of 8), one or two outputs in each, square kernel
3, 5 or 7 with "same" padding and no dilation. The kernel for few channels per group writes behind its buffers where
groups are left over after it took them 16 channels at a time.
"""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES, CLAMPS
from qtool.backends.record import Backend, GroupedFault, IsaCap, KernelIsa, OpRule, Saturates, Support, TransposedFault
from qtool.types import Granularity, Op

FBGEMM: Final = "https://github.com/pytorch/FBGEMM/blob/main/src/"
FBGEMM_CAP: Final = IsaCap(
    variables=("FBGEMM_ENABLE_INSTRUCTIONS",),
    usable=(("AVX2", ()), ("AVX512", ()), ("AVX512_256", ())),
    source=f"{FBGEMM}Utils.cc",
)
_OVERRUN_WORDS: Final = "fbgemm's kernel for few channels per group writes behind its buffers and crashes the process"
FBGEMM_OVERRUN: Final = GroupedFault(kernel=(3, 3), channels_per_group=(2, 4), multiple_of=16, what=_OVERRUN_WORDS)
FBGEMM_OVERRUN_3D: Final = GroupedFault(
    kernel=(3, 3, 3), channels_per_group=(2, 4), multiple_of=16, what=_OVERRUN_WORDS
)
_DIRECT: Final = TransposedFault(
    kernel_height=2,
    multiple_of=8,
    what="fbgemm's kernel for transposed convolutions with a window of height 2 gives other numbers",
)
_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)
_ONE_SCALE: Final = (Granularity.TENSOR,)
_MEASURED: Final = "tests/backends/test_kernel_saturation.py"
_MEASURED_TRANSPOSED: Final = "tests/backends/test_transposed.py"
_TENSOR_ONLY: Final = "its weight has one scale: the kernel refuses one a channel"

BACKEND: Final = Backend(
    name="fbgemm",
    title="FBGEMM, x86-64 servers",
    engine="fbgemm",
    runtime="torch",
    isa=KernelIsa(vnni_flags=("avx512_vnni",), caps=(FBGEMM_CAP,), source=f"{FBGEMM}Utils.cc"),
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            note="a convolution over one row, which the depthwise kernel of conv2d does not take",
            source=f"{FBGEMM}GenerateKernelU8S8S32ACC32.cc",
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
            note="the depthwise kernel is written for AVX2 and runs on every CPU",
            source=f"{FBGEMM}GenerateI8Depthwise.cc",
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
            note="the depthwise kernel is written for AVX2 and runs on every CPU",
            source=f"{FBGEMM}FbgemmI8Depthwise3DAvx2.cc",
            measured=_MEASURED,
        ),
        OpRule(
            op=Op.CONV_TRANSPOSE1D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_ONE_SCALE,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            note=_TENSOR_ONLY,
            source=f"{ATEN}qconv_prepack.cpp",
            measured=_MEASURED_TRANSPOSED,
        ),
        OpRule(
            op=Op.CONV_TRANSPOSE2D,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_ONE_SCALE,
            saturates=Saturates.WITHOUT_VNNI,
            depthwise_saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            faults=(_DIRECT,),
            note=_TENSOR_ONLY,
            source=f"{FBGEMM}DirectConv.cc",
            measured=_MEASURED_TRANSPOSED,
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.WRONG_UNLESS,
            unless="its input uses 0..127, or the CPU has AVX-512 VNNI",
            granularities=_CHANNEL_FIRST,
            saturates=Saturates.WITHOUT_VNNI,
            fused_activations=CLAMPS,
            source=f"{FBGEMM}GenerateKernelU8S8S32ACC32.cc",
            measured=_MEASURED,
        ),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv.cpp",
)
