"""How a tensor lies in memory, to the stride: what backward has to know of values that it does not keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from qtool.numerics.kernels.fake_quantize import decode

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.numerics.grid import Grid


class Strides(NamedTuple):
    """All of a tensor but its elements.

    Attributes:
        shape: its sizes.
        stride: its strides; 0 where an element is repeated.
        dtype: of its elements.
        device: where they are.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> Strides:
        """Return how `x` lies in memory."""
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device)

    def untouched(self) -> Tensor:
        """Return a tensor that lies like this and that nobody reads or writes: it takes addresses, but no memory."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)

    def decoded(self, codes: Tensor, grid: Grid) -> Tensor:
        """Return the values of codes, lying like this.

        ATen's ops take other ways for other strides, whose results differ in the last bit: exp is computed by a
        vector function inside a row and by a scalar one at its end.

        Args:
            codes: of the same shape, repeated where the strides are 0.
            grid: what they stand for.
        """
        repeated = [dim for dim, stride in enumerate(self.stride) if stride == 0]
        for dim in repeated if 0 not in self.shape else ():
            codes = codes.narrow(dim, 0, 1)
        values = decode(codes, grid, self.dtype)
        if values.stride() != self.stride and not repeated:
            values = self.untouched().copy_(values)
        return values.expand(self.shape)
