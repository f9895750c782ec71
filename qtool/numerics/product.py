"""The product of a layer's input and weight, forward and backward, as plain functions of tensors.

A layer that recomputes or decodes what it needs in backward calls both by itself, so neither is left to autograd.

Shapes: convolution x (N, in, *size), w (out, in / groups, *kernel), transposed w (in, out / groups, *kernel);
linear x (*, in), w (out, in).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    x: bool
    weight: bool
    bias: bool


class Gradients(NamedTuple):
    """The gradients that were asked for; None for the others."""

    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution over any number of dimensions; its attributes are those of `aten.convolution`."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    transposed: bool

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the result for a batch of inputs, or for one input without a batch."""
        if x.dim() == self._num_dims - 1:
            return self.forward(x.unsqueeze(0), weight, bias).squeeze(0)
        return torch.ops.aten.convolution(
            x,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
        )

    def backward(self, grad: Tensor, x: Tensor, weight: Tensor, wanted: Wanted) -> Gradients:
        """Return the gradients for that of the result."""
        if x.dim() == self._num_dims - 1:
            of_batch = self.backward(grad.unsqueeze(0), x.unsqueeze(0), weight, wanted)
            return of_batch._replace(x=None if of_batch.x is None else of_batch.x.squeeze(0))
        num_channels = grad.shape[1]
        found = torch.ops.aten.convolution_backward(
            grad,
            x,
            weight,
            [num_channels],
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding,
            self.groups,
            list(wanted),
        )
        return Gradients(*(tensor if asked else None for tensor, asked in zip(found, wanted, strict=True)))

    @property
    def _num_dims(self) -> int:
        """Dimensions of an input with its batch."""
        return len(self.stride) + 2

    def num_products(self, weight_shape: torch.Size) -> int:
        """Return how many products make one element of the result.

        Example:
            A 3x3 convolution of 64 channels in one group: 576; depthwise: 9.
        """
        kernel = prod(weight_shape[2:])
        return (weight_shape[0] // self.groups if self.transposed else weight_shape[1]) * kernel


@dataclass(frozen=True)
class Linear:
    """A linear layer over the last dimension."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the result for inputs of any number of dimensions."""
        return linear(x, weight, bias)

    def backward(self, grad: Tensor, x: Tensor, weight: Tensor, wanted: Wanted) -> Gradients:
        """Return the gradients for that of the result."""
        rows = grad.reshape(-1, grad.shape[-1])
        return Gradients(
            x=(rows @ weight).view(x.shape) if wanted.x else None,
            weight=rows.t() @ x.reshape(-1, x.shape[-1]) if wanted.weight else None,
            bias=rows.sum(0) if wanted.bias else None,
        )

    def num_products(self, weight_shape: torch.Size) -> int:
        """Return how many products make one element of the result."""
        return weight_shape[1]


Product = Convolution | Linear
