"""fbgemm: torch's x86 engine for servers.

Every kernel adds pairs in int16 unless it finds AVX-512 VNNI (AVX-VNNI alone is not used). The depthwise kernel does
so even there: 2-d, as many groups as input channels (a multiple of 8), one or two outputs in each, square kernel
3, 5 or 7 with "same" padding and no dilation. The kernel for few channels per group writes behind its buffers where
groups are left over after it took them 16 channels at a time.

All of them unfold the input with the channels innermost and interleave four rows of the weight, so that the neighbours
2k and 2k + 1 in that order meet in int16: groups, depthwise and transposed ones too.
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
from qtool.backends.record import (
    Backend,
    GroupedFault,
    IsaCap,
    KernelIsa,
    OpRule,
    Pairing,
    Saturates,
    Support,
    TransposedFault,
)
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
_UNLESS: Final = "its input uses 0..127, or the CPU has AVX-512 VNNI"

FBGEMM_LINEAR: Final = OpRule(
    op=Op.LINEAR,
    support=Support.WRONG_UNLESS,
    unless=_UNLESS,
    granularities=CHANNEL_FIRST,
    saturates=Saturates.WITHOUT_VNNI,
    pairings=(Pairing.IN_ORDER,),
    fused_activations=CLAMPS,
    source=f"{FBGEMM}GenerateKernelU8S8S32ACC32.cc",
    measured=MEASURED_MACS,
)
FBGEMM_CONV1D: Final = replace(
    FBGEMM_LINEAR,
    op=Op.CONV1D,
    depthwise_saturates=Saturates.WITHOUT_VNNI,
    note="a convolution over one row, which the depthwise kernel of conv2d does not take",
)
FBGEMM_CONV2D: Final = replace(
    FBGEMM_LINEAR,
    op=Op.CONV2D,
    unless=f"{_UNLESS} and it is not depthwise",
    depthwise_saturates=Saturates.ALWAYS,
    faults=(FBGEMM_OVERRUN,),
    note="the depthwise kernel is written for AVX2 and runs on every CPU",
    source=f"{FBGEMM}GenerateI8Depthwise.cc",
)
FBGEMM_CONV3D: Final = replace(
    FBGEMM_CONV2D, op=Op.CONV3D, faults=(FBGEMM_OVERRUN_3D,), source=f"{FBGEMM}FbgemmI8Depthwise3DAvx2.cc"
)
_CONV_TRANSPOSE1D: Final = replace(
    FBGEMM_CONV1D,
    op=Op.CONV_TRANSPOSE1D,
    granularities=(Granularity.TENSOR,),
    note="its weight has one scale: the kernel refuses one a channel",
    source=f"{ATEN}qconv_prepack.cpp",
    measured=MEASURED_TRANSPOSED,
)

BACKEND: Final = Backend(
    name="fbgemm",
    title="FBGEMM, x86-64 servers",
    engine="fbgemm",
    runtime="torch",
    isa=KernelIsa(vnni_flags=("avx512_vnni",), caps=(FBGEMM_CAP,), source=f"{FBGEMM}Utils.cc"),
    rules=(
        FBGEMM_CONV1D,
        FBGEMM_CONV2D,
        FBGEMM_CONV3D,
        _CONV_TRANSPOSE1D,
        replace(_CONV_TRANSPOSE1D, op=Op.CONV_TRANSPOSE2D, faults=(_DIRECT,), source=f"{FBGEMM}DirectConv.cc"),
        FBGEMM_LINEAR,
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv.cpp",
)
