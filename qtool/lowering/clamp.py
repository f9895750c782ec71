"""Clamping of codes where they lie, for kernels that have just written them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qtool.lowering.quint8 import to_codes, to_quint8
from qtool.numerics.kernels import native_codes

if TYPE_CHECKING:
    from torch import Tensor


def clamped(codes: Tensor, low: int, high: int) -> Tensor:
    """Return codes, plain or quint8, moved into low..high; where they lie, so nobody else may hold the tensor."""
    if codes.is_quantized and torch._C._get_tracing_state() is not None:
        return to_quint8(codes.int_repr().clamp_(low, high), codes.q_scale(), codes.q_zero_point())
    functions = native_codes.functions()
    if functions is None or not native_codes.takes(codes) or not native_codes.is_dense(codes):
        to_codes(codes).clamp_(low, high)
        return codes
    count = codes.numel()
    functions.qtool_clamp_codes(codes.data_ptr(), count, low, high, native_codes.threads_for(count))
    return codes
