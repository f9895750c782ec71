"""torch's quantized tensors, which the packed engines take; made here and nowhere else.

torch has deprecated them (pytorch#184982) and says so once per process, when the first one is made. That one is
made here, at import and silently: filters of Python's warnings are process-wide, so silencing each call would
change them under other threads.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


def to_quint8(codes: Tensor, scale: float, zero_point: int) -> Tensor:
    """Return uint8 codes as torch.quint8, the same codes in the same memory format."""
    return torch._make_per_tensor_quantized_tensor(codes, scale, zero_point)


def viewed_as_quint8(codes: Tensor, scale: float, zero_point: int) -> Tensor:
    """Return uint8 codes as torch.quint8 in the same memory, of the same shape and strides; a copy while traced."""
    if torch._C._get_tracing_state() is not None:  # a trace records no storage: it would give empty tensors
        return to_quint8(codes, scale, zero_point)
    quantized = torch._empty_affine_quantized([0], scale=scale, zero_point=zero_point, dtype=torch.quint8)
    return quantized.set_(codes.untyped_storage(), codes.storage_offset(), codes.shape, codes.stride())


def to_codes(codes: Tensor) -> Tensor:
    """Return the uint8 codes of a torch.quint8 in the same memory; plain codes as they are; a copy while traced."""
    if codes.dtype is torch.uint8:
        return codes
    if torch._C._get_tracing_state() is not None:
        return codes.int_repr()
    plain = torch.empty(0, dtype=torch.uint8)
    return plain.set_(codes.untyped_storage(), codes.storage_offset(), codes.shape, codes.stride())


def to_qint8(codes: Tensor, scales: Tensor, *, axis: int = 0) -> Tensor:
    """Return int8 weight codes as torch.qint8 with one scale per output channel.

    Args:
        codes: int8, with O output channels on `axis`.
        scales: float32 (O,).
        axis: where the output channels lie.
    """
    zero_points = torch.zeros(len(scales), dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(codes, scales.double(), zero_points, axis)


def to_qint8_per_tensor(codes: Tensor, scale: float) -> Tensor:
    """Return int8 weight codes as torch.qint8 with one scale."""
    return torch._make_per_tensor_quantized_tensor(codes, scale, 0)


def _say_the_deprecation_once() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor, torch.quantize_per_channel")
        to_quint8(torch.zeros(1, dtype=torch.uint8), 1.0, 0)


_say_the_deprecation_once()
