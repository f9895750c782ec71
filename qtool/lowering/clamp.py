"""Clamping of codes where they lie, for kernels that have just written them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.lowering.quint8 import to_codes
from qtool.numerics.kernels import native_codes

if TYPE_CHECKING:
    from torch import Tensor


def clamp_in_place(codes: Tensor, low: int, high: int) -> None:
    """Move codes, plain or quint8, into low..high. Nobody else may hold the tensor."""
    functions = native_codes.functions()
    if functions is None or not native_codes.takes(codes) or not native_codes.is_dense(codes):
        to_codes(codes).clamp_(low, high)
        return
    count = codes.numel()
    functions.qtool_clamp_codes(codes.data_ptr(), count, low, high, native_codes.threads_for(count))
