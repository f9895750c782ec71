"""Where the output channels of a weight lie: one number for each of them, laid out to fit the weight.

convolution, linear         (out, in / groups, *kernel)     axis 0
transposed convolution      (in, out / groups, *kernel)     axis 1, and group by group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import Node

aten = torch.ops.aten

TRANSPOSED: frozenset[Any] = frozenset(
    {aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input}
)
"""Convolutions whose output channels lie on axis 1 of the weight."""

_GROUPS = 6
"""Where all convolutions, transposed ones too, have their number of groups."""


@dataclass(frozen=True)
class WeightLayout:
    """Where the output channels of a weight lie.

    Attributes:
        axis: 0, or 1 for a transposed convolution.
        groups: number of groups.
    """

    axis: int = 0
    groups: int = 1

    @staticmethod
    def of(node: Node) -> WeightLayout:
        """Return the layout of the weight of a convolution or linear node."""
        if node.target is aten.linear.default:
            return WeightLayout()
        groups: Any = node.args[_GROUPS] if len(node.args) > _GROUPS else node.kwargs.get("groups", 1)
        return WeightLayout(axis=1 if node.target in TRANSPOSED else 0, groups=int(groups))

    @property
    def channel_axis(self) -> int | None:
        """The axis that has one index per output channel; None where groups split the channels over two."""
        return None if self.axis == 1 and self.groups > 1 else self.axis

    def channels_first(self, weight: Tensor) -> Tensor:
        """Return the weight as `(out, in / groups, *kernel)`, whatever its layout."""
        if self.axis == 0:
            return weight
        by_group = weight.unflatten(0, (self.groups, -1))
        return by_group.transpose(1, 2).flatten(0, 1)

    def num_channels(self, weight_shape: Sequence[int]) -> int:
        """Return how many output channels a weight has."""
        return num_output_channels(weight_shape, axis=self.axis, groups=self.groups)

    def spread(self, values: Tensor, weight_shape: Sequence[int]) -> Tensor:
        """Return one number per output channel so that they broadcast against the weight."""
        return per_output_channel(values, weight_shape, axis=self.axis, groups=self.groups)


def num_output_channels(weight_shape: Sequence[int], *, axis: int, groups: int) -> int:
    """Return how many output channels a weight has.

    Args:
        weight_shape: shape of the weight.
        axis: its output channel axis, 0 or 1.
        groups: number of groups.

    Example:
        >>> num_output_channels((8, 4, 3, 3), axis=0, groups=2), num_output_channels((8, 4, 3, 3), axis=1, groups=2)
        (8, 8)
    """
    return weight_shape[0] if axis == 0 else weight_shape[1] * groups


def per_output_channel(values: Tensor, weight_shape: Sequence[int], *, axis: int, groups: int) -> Tensor:
    """Return numbers per output channel so that they broadcast against the weight.

    In a transposed convolution with groups, input channel i belongs to group i // (in / groups), and its column j holds
    the weights of output channel group * (out / groups) + j.

    Args:
        values: (out,), any dtype.
        weight_shape: shape of the weight.
        axis: its output channel axis, 0 or 1.
        groups: number of groups.

    Returns:
        (out, 1, ...) for axis 0; (1, out, 1, ...) for axis 1; (in, out / groups, 1, ...) for axis 1 and several groups.

    Example:
        Four inputs, four outputs, two groups: values [a, b, c, d] become [[a, b], [a, b], [c, d], [c, d]].
    """
    kernel = (1,) * (len(weight_shape) - 2)
    if axis == 0:
        return values.view(-1, 1, *kernel)
    if groups == 1:
        return values.view(1, -1, *kernel)
    by_group = values.view(groups, weight_shape[1])
    return by_group.repeat_interleave(weight_shape[0] // groups, dim=0).view(*weight_shape[:2], *kernel)
