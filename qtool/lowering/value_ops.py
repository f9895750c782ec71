"""Sums, products, averages and functions of one value, from codes to codes.

In one pass of C where it is compiled and the tensors lie alike, else by the ATen ops that stand beside it: the same
codes. Codes may come as plain uint8 or as torch's quantized tensors; plain ones leave.
"""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qtool.lowering.quint8 import to_codes, viewed_as_quint8
from qtool.numerics.kernels import native_codes
from qtool.passes.ops import PATTERNS, argument, value
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import Node

    from qtool.lowering.grid import Grid

aten = torch.ops.aten

ADAPTIVE: dict[Any, int] = {
    aten.adaptive_avg_pool1d.default: 1,
    aten.adaptive_avg_pool2d.default: 2,
    aten.adaptive_avg_pool3d.default: 3,
}
"""Ops by their number of spatial dimensions."""

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Of dense tensors that are not contiguous, by their number of dimensions."""

OF_ONE_VALUE = frozenset({Op.SIGMOID, Op.HARDSIGMOID, Op.TANH, Op.HARDSWISH, Op.LEAKY_RELU})


def value_kernel(node: Node, inputs: Sequence[Grid], output: Grid, bounds: tuple[int, int]) -> nn.Module | None:
    """Return what computes an op on codes, or None where it stays in float between them.

    Args:
        node: an int8 op without weights, of a reference program.
        inputs: the grid of each tensor it reads.
        output: the grid of its result.
        bounds: smallest and largest code that a fused activation leaves.
    """
    op = PATTERNS[node.target]
    if op in (Op.ADD, Op.MUL):
        a, b = inputs
        return Pair(a, b, output, bounds, multiplies=op is Op.MUL)
    if op in OF_ONE_VALUE:
        target: Any = node.target
        return LookUp(inputs[0], output, bounds, lambda x: target(x, *node.args[1:], **node.kwargs))
    keeps_dims = _averages_planes(node, op)
    return None if keeps_dims is None else Average(inputs[0], output, bounds, keeps_dims=keeps_dims)


def _averages_planes(node: Node, op: Op) -> bool | None:
    """Return None if an op is no mean over all dimensions after the first two, else whether it keeps them."""
    source: Any = node.args[0]
    rank = value(source).dim()
    if op is Op.MEAN and rank > 2:
        dims: Any = node.args[1]
        is_all = dims is not None and sorted(dim % rank for dim in dims) == list(range(2, rank))
        return bool(argument(node, 2, "keepdim", False)) if is_all else None
    if op is Op.AVG_POOL and node.target in ADAPTIVE:
        size: Any = node.args[1]
        is_all = rank == ADAPTIVE[node.target] + 2 and all(each == 1 for each in size)
        return True if is_all else None
    return None


class Pair(nn.Module):
    """The sum or product of two tensors, clamped: bit for bit what the reference program computes in float.

    Attributes:
        gives_quint8: the codes leave as torch's quantized tensor, for packed layers.
    """

    def __init__(self, a: Grid, b: Grid, output: Grid, bounds: tuple[int, int], *, multiplies: bool) -> None:
        super().__init__()
        self.a, self.b, self.output, self.bounds = a, b, output, bounds
        self.multiplies = multiplies
        self.gives_quint8 = False
        result = output.as_result(bounds)
        self._told = native_codes.Pair(a.as_operand(), b.as_operand(), result, int(multiplies))
        self._address = byref(self._told)
        self._functions = native_codes.functions()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the codes of the result."""
        if self._functions is None or a.stride() != b.stride() or a.shape != b.shape or not _takes(a, b):
            codes = self._in_float(to_codes(a), to_codes(b))
            return viewed_as_quint8(codes, self.output.scale, self.output.zero_point) if self.gives_quint8 else codes
        out, count = self._empty(a), a.numel()
        self._functions.qtool_pair_codes(
            a.data_ptr(), b.data_ptr(), out.data_ptr(), count, self._address, native_codes.threads_for(count)
        )
        return out

    def _empty(self, like: Tensor) -> Tensor:
        if not self.gives_quint8:
            return _empty_codes(like)
        layout = torch.contiguous_format if like.is_contiguous() else LAYOUTS[like.dim()]
        scale, zero_point = self.output.scale, self.output.zero_point
        return torch._empty_affine_quantized(
            like.shape, scale=scale, zero_point=zero_point, dtype=torch.quint8, memory_format=layout
        )

    def _in_float(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.a.dequantize(a), self.b.dequantize(b)
        return self.output.quantize(x * y if self.multiplies else x + y).clamp_(*self.bounds)


class Average(nn.Module):
    """The mean over all that follows the first two dimensions, of exact sums; the reference program's are rounded."""

    def __init__(self, grid: Grid, output: Grid, bounds: tuple[int, int], *, keeps_dims: bool) -> None:
        super().__init__()
        self.grid, self.output, self.bounds = grid, output, bounds
        self.keeps_dims = keeps_dims
        self._functions = native_codes.functions()

    def forward(self, codes: Tensor) -> Tensor:
        """Return the codes of the means: (N, C), or with as many dimensions as `codes` (N, C, 1, ...)."""
        images, channels, *sizes = codes.shape
        plane = 1
        for size in sizes:
            plane *= size
        told = self._numbers(plane)
        if self._functions is None or not 0 < plane < native_codes.MOST_PIXELS or not _takes(codes):
            means = self._in_aten(to_codes(codes), told)
        else:
            means = torch.empty((images, channels), dtype=torch.uint8)
            self._functions.qtool_average_codes(
                *(codes.data_ptr(), means.data_ptr(), images, channels, plane, int(not codes.is_contiguous())),
                *(byref(told), native_codes.threads_for(codes.numel())),
            )
        return means.view(images, channels, *(1 for _ in sizes)) if self.keeps_dims else means

    def _numbers(self, plane: int) -> native_codes.Average:
        """Return factor and offset: code = rint((sum - plane * zero_point) * scale / (plane * output scale)) + ..."""
        factor = self.grid.scale / self.output.scale / max(plane, 1)
        return native_codes.Average(factor, plane * self.grid.zero_point, self.output.zero_point, *self.bounds)

    def _in_aten(self, codes: Tensor, told: native_codes.Average) -> Tensor:
        sums = codes.flatten(2).sum(2, dtype=torch.int64).double()
        steps = sums.sub_(told.offset).mul_(told.factor).round_().add_(told.zero_point)
        return steps.clamp_(*self.bounds).to(torch.uint8)


class LookUp(nn.Module):
    """A function of one value by a table of all codes, which the reference program's own ops have filled."""

    def __init__(self, grid: Grid, output: Grid, bounds: tuple[int, int], function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        every_code = torch.arange(256, dtype=torch.uint8)
        self.table = output.quantize(function(grid.dequantize(every_code))).clamp_(*bounds)
        self._functions = native_codes.functions()

    def forward(self, codes: Tensor) -> Tensor:
        """Return the codes of the function's values."""
        if self._functions is None or not _takes(codes):
            return self.table[to_codes(codes).int()]
        out, count = _empty_codes(codes), codes.numel()
        self._functions.qtool_look_up_codes(
            codes.data_ptr(), out.data_ptr(), count, self.table.data_ptr(), native_codes.threads_for(count)
        )
        return out


def _takes(*tensors: Tensor) -> bool:
    return all(native_codes.takes(x) and native_codes.is_dense(x) for x in tensors)


def _empty_codes(like: Tensor) -> Tensor:
    """Return plain codes, not filled, that lie as the dense `like`."""
    if like.dtype is torch.uint8:
        return torch.empty_like(like)
    return torch.empty_strided(like.shape, like.stride(), dtype=torch.uint8)
