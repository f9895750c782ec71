"""Convolution and linear on the packed engines: fbgemm, onednn and qnnpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.lowering.clamp import clamped
from qtool.lowering.engine_switch import packing_for
from qtool.lowering.op_calls import op_call
from qtool.lowering.quint8 import to_qint8, to_qint8_per_tensor
from qtool.lowering.ranks import on_images, on_rows
from qtool.numerics.kernels import native_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.lowering.mac import Mac

quantized = torch.ops.quantized


class PackedMac(nn.Module):
    """A convolution or linear layer whose weight is packed for one engine.

    The engines saturate to 0..255 only, so a narrower output range is clamped after them: without that, values beyond
    the calibrated range would give codes above 127, and the next layer would saturate. Not by torch's own clamp of
    quantized tensors: it asks the global engine who does it, and qnnpack's is wrong on channels_last.

    Attributes:
        clamp: the smallest and the largest code that may leave, or None where the engine sees to it.
        packed: the weight, an object of torch's C++ side.
        packing: what it was packed from, see `Mac.packing`.
    """

    def __init__(self, mac: Mac, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.packing = mac.packing(engine)
        self.smallest_input = mac.smallest_input()
        self.input, self.output = mac.input, mac.output
        self.num_dims = mac.num_dims
        lower, upper = mac.bounds
        relu_does_it = mac.has_relu and lower == mac.output.zero_point and not _is_transposed(mac)
        self.clamp: tuple[int, int] | None = None
        if upper < 255 or (lower > 0 and not relu_does_it):
            self.clamp = mac.bounds
        uses_relu = relu_does_it and self.clamp is None
        self.run = _operator(mac, uses_relu=uses_relu)
        with packing_for(engine):
            self.packed = _pack(mac)  # carries its engine from here on

    def forward(self, x: Tensor) -> Tensor:
        """Return the output as quint8; so is the input."""
        return on_images(self._run, x, num_dims=self.num_dims) if self.num_dims else on_rows(self._run, x)

    def direct(self) -> Callable[[Tensor], Tensor]:
        """Return `forward` for plain tensors, with all that does not change between calls looked up before."""
        functions = native_codes.functions()
        if functions is None or self.num_dims == 1:
            return self.forward
        forward, rank = self.forward, self.num_dims + 2
        run = op_call(self.run, self.packed, self.output.scale, self.output.zero_point)
        clamps, (low, high) = self.clamp is not None, self.clamp or (0, 255)
        clamp, threads_for = functions.qtool_clamp_codes, native_codes.threads_for

        def call(x: Tensor) -> Tensor:
            if x.dim() != rank:
                return forward(x)
            y = run(x)
            if not clamps:
                return y
            count = y.numel()
            clamp(y.data_ptr(), count, low, high, threads_for(count))
            return y

        return call

    def _run(self, x: Tensor) -> Tensor:
        y = self.run(x, self.packed, self.output.scale, self.output.zero_point)
        return y if self.clamp is None else clamped(y, *self.clamp)


def _is_transposed(mac: Mac) -> bool:
    """Whether it is a transposed convolution: those have no op with relu."""
    return mac.geometry is not None and mac.geometry.is_transposed


def _operator(mac: Mac, *, uses_relu: bool) -> Any:  # noqa: ANN401 - a torch op
    if mac.geometry is None:
        return quantized.linear_relu.default if uses_relu else quantized.linear.default
    if mac.geometry.is_transposed:
        return quantized.conv_transpose2d.default
    if mac.num_dims == 3:
        return quantized.conv3d_relu.new if uses_relu else quantized.conv3d.new
    return quantized.conv2d_relu.new if uses_relu else quantized.conv2d.new


def _pack(mac: Mac) -> Any:  # noqa: ANN401 - an object of torch's C++ side
    if mac.geometry is None:
        return quantized.linear_prepack(_weight(mac.codes, mac.scales, axis=0), mac.bias)
    g = mac.image_geometry()
    if g.output_padding is not None:
        weight = _weight(mac.image_codes(), mac.scales, axis=1)
        return quantized.conv_transpose2d_prepack(
            weight, mac.bias, g.stride, g.padding, g.output_padding, g.dilation, g.groups
        )
    prepack = quantized.conv3d_prepack if mac.num_dims == 3 else quantized.conv2d_prepack
    return prepack(_weight(mac.image_codes(), mac.scales, axis=0), mac.bias, g.stride, g.padding, g.dilation, g.groups)


def _weight(codes: Tensor, scales: Tensor, *, axis: int) -> Tensor:
    return to_qint8(codes, scales, axis=axis) if scales.dim() else to_qint8_per_tensor(codes, float(scales))
