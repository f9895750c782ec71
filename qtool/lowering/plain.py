"""Convolution and linear on oneDNN's plain-tensor ops, for the engine x86.

They take and give plain uint8 tensors, are not deprecated, and clamp the output range as part of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from qtool.lowering.op_calls import op_call
from qtool.lowering.ranks import on_images, on_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.lowering.mac import Mac

onednn = torch.ops.onednn


class PlainConv(nn.Module):
    """A convolution on oneDNN.

    Attributes:
        packing: what its weight was packed from, see `Mac.packing`.
        clamp: the smallest and the largest code that may leave, where the kernel does not see to it: over three
            dimensions it has no clamp.
    """

    def __init__(self, mac: Mac, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.packing = mac.packing(engine)
        self.input, self.output = mac.input, mac.output
        self.num_dims = mac.num_dims
        g = mac.image_geometry()
        self.geometry = (g.stride, g.padding, g.dilation, g.groups)
        self.bias = mac.bias
        self.scales = mac.scales_per_channel()
        self.zero_points = mac.zero_points()
        self.post_op, self.bounds = ("none", []) if mac.num_dims == 3 else _post_op(mac)
        self.clamp = mac.bounds if mac.num_dims == 3 and mac.clamps else None
        self.weight = onednn.qconv_prepack(
            mac.image_codes(), self.scales, mac.input.scale, mac.input.zero_point, *self.geometry
        )

    def forward(self, codes: Tensor) -> Tensor:
        """Return the output codes."""
        return on_images(self._run, codes, num_dims=self.num_dims)

    def direct(self) -> Callable[[Tensor], Tensor]:
        """Return `forward`, with all that does not change between calls looked up before."""
        if self.num_dims != 2:
            return self.forward
        forward, x, y = self.forward, self.input, self.output
        run = op_call(
            onednn.qconv_pointwise.default,
            *(x.scale, x.zero_point, self.weight, self.scales, self.zero_points, self.bias, *self.geometry),
            *(y.scale, y.zero_point, y.dtype, self.post_op, self.bounds, ""),
        )

        def call(codes: Tensor) -> Tensor:
            return run(codes) if codes.dim() == 4 else forward(codes)

        return call

    def _run(self, codes: Tensor) -> Tensor:
        x, y = self.input, self.output
        result = onednn.qconv_pointwise(
            codes, x.scale, x.zero_point, self.weight, self.scales, self.zero_points, self.bias, *self.geometry,
            y.scale, y.zero_point, y.dtype, self.post_op, self.bounds, "",
        )  # fmt: skip
        return result if self.clamp is None else result.clamp_(*self.clamp)


class PlainLinear(nn.Module):
    """A linear layer on oneDNN.

    Attributes:
        packing: what its weight was packed from, see `Mac.packing`.
    """

    def __init__(self, mac: Mac, engine: str) -> None:
        super().__init__()
        self.engine = engine
        self.packing = mac.packing(engine)
        self.input, self.output = mac.input, mac.output
        self.bias = mac.bias
        self.scales = mac.scales_per_channel()
        self.zero_points = mac.zero_points()
        self.post_op, self.bounds = _post_op(mac)
        self.weight = onednn.qlinear_prepack(mac.codes, None)

    def forward(self, codes: Tensor) -> Tensor:
        """Return the output codes."""
        return on_rows(self._run, codes)

    def _run(self, codes: Tensor) -> Tensor:
        x, y = self.input, self.output
        return onednn.qlinear_pointwise(
            codes, x.scale, x.zero_point, self.weight, self.scales, self.zero_points, self.bias,
            y.scale, y.zero_point, y.dtype, self.post_op, self.bounds, "",
        )  # fmt: skip


def plain_mac(mac: Mac, engine: str) -> nn.Module:
    """Return the kernel for a convolution or linear layer."""
    return PlainLinear(mac, engine) if mac.geometry is None else PlainConv(mac, engine)


def _post_op(mac: Mac) -> tuple[str, list[float]]:
    """Return oneDNN's clamp to the output range in real numbers, which it applies before it rounds."""
    if not mac.clamps:
        return "none", []
    return "hardtanh", [mac.output.value(code) for code in mac.bounds]
