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

NUM_DIMS: dict[Any, int] = {aten.max_pool1d.default: 1, aten.max_pool2d.default: 2, aten.max_pool3d.default: 3}


class MaxPool(nn.Module):
    """A max pool of plain uint8 tensors, over one, two or three dimensions.

    `aten.max_pool2d` refuses channels_last bytes of more than 127 positions, and is slow on others; torch's quantized
    pool takes plain bytes of every layout, but needs a batch and two spatial dimensions. There is none of three:
    `aten.max_pool3d` refuses the same bytes, so it gets them contiguous.
    """

    def __init__(self, node: Node) -> None:
        """Take the geometry of an `aten.max_pool1d`, `aten.max_pool2d` or `aten.max_pool3d` node."""
        super().__init__()
        self.num_dims = NUM_DIMS[node.target]
        kernel_size = argument(node, 1, "kernel_size", None)
        stride = argument(node, 2, "stride", ()) or kernel_size
        self.geometry = [
            self._per_dimension(kernel_size, 1),
            self._per_dimension(stride, 1),
            self._per_dimension(argument(node, 3, "padding", 0), 0),
            self._per_dimension(argument(node, 4, "dilation", 1), 1),
        ]
        self.ceil_mode = bool(argument(node, 5, "ceil_mode", False))

    def forward(self, codes: Tensor) -> Tensor:
        """Return the largest code of each window."""
        return on_images(self._pool, codes, num_dims=self.num_dims)

    def _pool(self, codes: Tensor) -> Tensor:
        if self.num_dims == 3:
            return aten.max_pool3d.default(codes.contiguous(), *self.geometry, self.ceil_mode)
        return torch.ops.quantized.max_pool2d(codes, *self.geometry, self.ceil_mode)

    def _per_dimension(self, argument: Any, missing: int) -> list[int]:  # noqa: ANN401 - an argument of the node
        values = list(argument) if isinstance(argument, (list, tuple)) else [argument]
        if self.num_dims == 1:
            return [missing, *values]
        return values * self.num_dims if len(values) == 1 else values
