"""x86: torch's default engine, which picks fbgemm or oneDNN per op by the CPU it finds: the worse of both.

It takes oneDNN where the CPU has AVX-512 VNNI and the convolution at most 100 groups, and fbgemm elsewhere; so both
libraries' caps count, and AVX-VNNI alone does not help.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qtool.backends.catalog.aten_ops import ATEN, ATEN_RULES
from qtool.backends.catalog.fbgemm import FBGEMM_CAP, FBGEMM_CONV1D, FBGEMM_CONV2D, FBGEMM_CONV3D, FBGEMM_LINEAR
from qtool.backends.catalog.onednn import ONEDNN_CAP, ONEDNN_TRANSPOSED
from qtool.backends.record import Backend, KernelIsa, Pairing

_CHOICE: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/quantized/cpu/OnednnUtils.h"
_EITHER: Final = (Pairing.IN_ORDER, Pairing.CHANNELS)
_FBGEMM_ONLY: Final = (Pairing.IN_ORDER,)  # oneDNN's depthwise kernel is exact
_GROUPS: Final = "more than 100 groups go to fbgemm's depthwise kernel, which saturates with VNNI too"

BACKEND: Final = Backend(
    name="x86",
    title="torch's x86 engine, x86-64",
    engine="x86",
    runtime="torch",
    isa=KernelIsa(vnni_flags=("avx512_vnni",), caps=(FBGEMM_CAP, ONEDNN_CAP), source=_CHOICE),
    rules=(
        replace(FBGEMM_CONV1D, pairings=_EITHER, depthwise_pairings=_FBGEMM_ONLY, note="", source=_CHOICE),
        replace(FBGEMM_CONV2D, pairings=_EITHER, depthwise_pairings=_FBGEMM_ONLY, note=_GROUPS, source=_CHOICE),
        replace(FBGEMM_CONV3D, pairings=_EITHER, depthwise_pairings=_FBGEMM_ONLY, note=_GROUPS, source=_CHOICE),
        *ONEDNN_TRANSPOSED,
        replace(FBGEMM_LINEAR, pairings=_EITHER, source=_CHOICE),
        *ATEN_RULES,
    ),
    source=f"{ATEN}qconv_prepack.cpp",
)
