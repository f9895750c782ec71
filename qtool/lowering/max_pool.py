"""Max pooling of codes: the largest code is that of the largest value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.lowering.ranks import on_images
from qtool.passes.ops import argument

if TYPE_CHECKING:
    from torch.fx import Node

aten = torch.ops.aten


class MaxPool(nn.Module):
    """A max pool of plain uint8 tensors, over one or two dimensions.

    `aten.max_pool2d` refuses channels_last bytes of more than 127 positions, and is slow on others; torch's quantized
    pool takes plain bytes of every layout, but needs a batch and two spatial dimensions.
    """

    def __init__(self, node: Node) -> None:
        """Take the geometry of an `aten.max_pool1d` or `aten.max_pool2d` node."""
        super().__init__()
        self.is_1d = node.target is aten.max_pool1d.default
        kernel_size = argument(node, 1, "kernel_size", None)
        stride = argument(node, 2, "stride", ()) or kernel_size
        self.geometry = [
            self._both_dimensions(kernel_size, 1),
            self._both_dimensions(stride, 1),
            self._both_dimensions(argument(node, 3, "padding", 0), 0),
            self._both_dimensions(argument(node, 4, "dilation", 1), 1),
        ]
        self.ceil_mode = bool(argument(node, 5, "ceil_mode", False))

    def forward(self, codes: Tensor) -> Tensor:
        """Return the largest code of each window."""
        return on_images(self._pool, codes, is_1d=self.is_1d)

    def _pool(self, codes: Tensor) -> Tensor:
        return torch.ops.quantized.max_pool2d(codes, *self.geometry, self.ceil_mode)

    def _both_dimensions(self, argument: Any, missing: int) -> list[int]:  # noqa: ANN401 - an argument of the node
        values = list(argument) if isinstance(argument, (list, tuple)) else [argument]
        if self.is_1d:
            return [missing, *values]
        return values * 2 if len(values) == 1 else values
