"""Convolution and linear on the packed engines, fbgemm and qnnpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.lowering.engine_switch import packing_for
from qtool.lowering.quint8 import to_qint8, to_qint8_per_tensor
from qtool.lowering.ranks import on_images, on_rows

if TYPE_CHECKING:
    from qtool.lowering.mac import Mac

quantized = torch.ops.quantized


class PackedMac(nn.Module):
    """A convolution or linear layer whose weight is packed for one engine.

    The engines saturate to 0..255 only, so a narrower output range is left to be clamped: without that, values
    beyond the calibrated range would give codes above 127, and the next layer would saturate.

    Attributes:
        clamp: the smallest and the largest code that may leave, or None where the engine sees to it.
    """

    def __init__(self, mac: Mac, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.output = mac.output
        self.is_linear = mac.geometry is None
        self.is_1d = mac.is_conv1d
        lower, upper = mac.bounds
        relu_does_it = mac.has_relu and lower == mac.output.zero_point
        self.clamp: tuple[int, int] | None = None
        if upper < 255 or (lower > 0 and not relu_does_it):
            self.clamp = mac.bounds
        uses_relu = relu_does_it and self.clamp is None
        self.run = _operator(mac, uses_relu=uses_relu)
        with packing_for(engine):
            self.packed = _pack(mac)  # carries its engine from here on

    def forward(self, x: Tensor) -> Tensor:
        """Return the output as quint8, not clamped yet; so is the input."""
        return on_rows(self._run, x) if self.is_linear else on_images(self._run, x, is_1d=self.is_1d)

    def _run(self, x: Tensor) -> Tensor:
        return self.run(x, self.packed, self.output.scale, self.output.zero_point)


def _operator(mac: Mac, *, uses_relu: bool) -> Any:  # noqa: ANN401 - a torch op
    if mac.geometry is None:
        return quantized.linear_relu.default if uses_relu else quantized.linear.default
    return quantized.conv2d_relu.new if uses_relu else quantized.conv2d.new


def _pack(mac: Mac) -> Any:  # noqa: ANN401 - an object of torch's C++ side
    codes = mac.codes if mac.geometry is None else mac.conv2d_codes()
    weight = to_qint8(codes, mac.scales) if mac.scales.dim() else to_qint8_per_tensor(codes, float(mac.scales))
    if mac.geometry is None:
        return quantized.linear_prepack(weight, mac.bias)
    return quantized.conv2d_prepack(weight, mac.bias, *mac.conv2d_geometry())
