"""The seams of a lowered graph: float to codes, codes to float, and plain codes to torch's quantized tensors."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from qtool.lowering.quint8 import to_codes, viewed_as_quint8
from qtool.numerics.kernels import native_codes

if TYPE_CHECKING:
    from qtool.lowering.grid import Grid


class Quantize(nn.Module):
    """From float to codes, where float meets int8.

    Attributes:
        is_for_images: only kernels that want images in channels_last read the codes, so they are written in it.
    """

    def __init__(self, grid: Grid, *, is_for_images: bool = False) -> None:
        super().__init__()
        self.grid = grid
        self.is_for_images = is_for_images
        self._told = grid.as_result()
        self._address = byref(self._told)
        self._functions = native_codes.functions() if grid.dtype is torch.uint8 else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the codes of `x`, bit-equal to the reference op."""
        if self._functions is None or x.dtype is not torch.float32 or not native_codes.takes(x):
            return self.grid.quantize(x)
        if not native_codes.is_dense(x):
            x = x.contiguous()
        count = x.numel()
        threads = native_codes.threads_for(count)
        if self.is_for_images and x.dim() == 4 and x.is_contiguous() and x.shape[1] <= native_codes.MOST_CHANNELS:
            images, channels, height, width = x.shape
            codes = torch.empty_like(x, dtype=torch.uint8, memory_format=torch.channels_last)
            self._functions.qtool_quantize_to_channels_last(
                x.data_ptr(), codes.data_ptr(), images, channels, height * width, self._address, threads
            )
            return codes
        codes = torch.empty_like(x, dtype=torch.uint8)
        self._functions.qtool_quantize_codes(x.data_ptr(), codes.data_ptr(), count, self._address, threads)
        return codes


class Dequantize(nn.Module):
    """From codes to float, where int8 meets float."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self._told = grid.as_operand()
        self._address = byref(self._told)
        self._functions = native_codes.functions() if grid.dtype is torch.uint8 else None

    def forward(self, codes: Tensor) -> Tensor:
        """Return the values of `codes`, bit-equal to the reference op."""
        codes = to_codes(codes)
        if self._functions is None or not native_codes.takes(codes) or not native_codes.is_dense(codes):
            return self.grid.dequantize(codes)
        values, count = torch.empty_like(codes, dtype=torch.float32), codes.numel()
        self._functions.qtool_dequantize_codes(
            codes.data_ptr(), values.data_ptr(), count, self._address, native_codes.threads_for(count)
        )
        return values


class ToQuint8(nn.Module):
    """From plain codes to torch's quantized tensor, which the packed engines take."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid

    def forward(self, codes: Tensor) -> Tensor:
        """Return the same codes as quint8, in the same memory."""
        return viewed_as_quint8(codes, self.grid.scale, self.grid.zero_point)


class ToCodes(nn.Module):
    """From torch's quantized tensor to plain codes."""

    def forward(self, quantized: Tensor) -> Tensor:
        """Return the codes as uint8, in the same memory."""
        return to_codes(quantized)
