"""Max pooling of 8-bit codes, and its gradient from one byte an output: the place of the largest in its window.

The places of a window are numbered in scan order; of equal codes the first counts, as in ATen. Everything here is
pooling of three dimensions: N images, C channels, depth D, height H, width W; missing dimensions have the size 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qtool.numerics.kernels import native_max_pool as native
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.layout import memory_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.numerics.grid import Grid

aten = torch.ops.aten

MOST_PLACES = 255
"""Places of a window that one byte numbers, with one value left over for padding."""

Triple = tuple[int, int, int]


class Windows(NamedTuple):
    """Where the windows of a pooling lie; depth, height, width each.

    Attributes:
        num_dims: how many of the three there are, from the last.
        kernel: size of a window.
        stride: from window to window.
        padding: before the first and behind the last value.
        dilation: from place to place.
        ceil_mode: whether a last window may reach over the end.
    """

    num_dims: int
    kernel: Triple
    stride: Triple
    padding: Triple
    dilation: Triple
    ceil_mode: bool

    @classmethod
    def of(
        cls,
        num_dims: int,
        kernel_size: Sequence[int] | int,
        stride: Sequence[int] | int = (),
        padding: Sequence[int] | int = 0,
        dilation: Sequence[int] | int = 1,
        ceil_mode: bool = False,
    ) -> Windows:
        """Return the windows of a pooling of so many dimensions, from the arguments of ATen's op.

        Example:
            >>> Windows.of(2, [3, 3], [2, 2], 1).padding
            (0, 1, 1)
        """

        def triple(sizes: Sequence[int] | int, missing: int) -> Triple:
            given = [sizes] if isinstance(sizes, int) else list(sizes)
            given = given * num_dims if len(given) == 1 else given
            depth, height, width = [missing] * (3 - num_dims) + given
            return depth, height, width

        kernel = triple(kernel_size, 1)
        steps = kernel if not isinstance(stride, int) and not len(stride) else triple(stride, 1)
        return cls(num_dims, kernel, steps, triple(padding, 0), triple(dilation, 1), ceil_mode)

    def output_size(self, size: Triple) -> Triple:
        """Return depth, height and width of the output.

        Source: pooling_output_shape in aten/src/ATen/native/Pool.h.
        """
        depth, height, width = (self._windows_along(dim, size[dim]) for dim in range(3))
        return depth, height, width

    def fit(self, size: Triple) -> bool:
        """Return whether places fit a byte, and every window sees at least one value of an input of this size."""
        num_places = self.kernel[0] * self.kernel[1] * self.kernel[2]
        output = self.output_size(size)
        return num_places <= MOST_PLACES and min(output) > 0 and all(self._sees(dim, size[dim]) for dim in range(3))

    def _windows_along(self, dim: int, size: int) -> int:
        kernel, stride, padding, dilation = (part[dim] for part in self[1:5])
        spare = size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if self.ceil_mode else 0)
        windows = spare // stride + 1
        starts_outside = self.ceil_mode and (windows - 1) * stride >= size + padding
        return windows - 1 if starts_outside else windows

    def _sees(self, dim: int, size: int) -> bool:
        kernel, stride, padding, dilation = (part[dim] for part in self[1:5])
        if padding > kernel // 2:
            return False  # ATen refuses it
        if dilation == 1:
            return size > 0
        starts = range(-padding, self._windows_along(dim, size) * stride - padding, stride)
        return all(any(0 <= start + place * dilation < size for place in range(kernel)) for start in starts)


class Pooled(NamedTuple):
    """What a pooling of codes gives.

    Attributes:
        codes: of the largest values.
        places: uint8, same shape and memory format: where in its window each was found.
    """

    codes: Tensor
    places: Tensor


def equal_values_first(grid: Grid, dtype: torch.dtype) -> Tensor | None:
    """Return for each code, as a byte, the smallest code of the same value; None where no two codes share a value.

    The bits of float16 and bfloat16 are too few for the values of some codes: ATen sees equal values there.

    Args:
        grid: one scale.
        dtype: of the values.

    Returns:
        uint8 `(256,)`, to be read at the code's byte.
    """
    if dtype.itemsize > 2:
        return None
    limits = torch.iinfo(grid.code_dtype)
    codes = torch.arange(limits.min, limits.max + 1, device=grid.scale.device).to(grid.code_dtype)
    values = decode(codes, grid, dtype).float()
    firsts = codes[torch.searchsorted(values, values)]
    table = torch.empty(256, dtype=torch.uint8, device=codes.device)
    table[codes.view(torch.uint8).long()] = firsts.view(torch.uint8)
    return table


def max_pool_codes(codes: Tensor, windows: Windows, table: Tensor | None = None) -> Pooled:
    """Return the largest code of each window, and where it is.

    Args:
        codes: uint8 or int8 `(N, C, *)` or `(C, *)`, any layout.
        windows: must `fit`.
        table: codes to take instead, as from `equal_values_first`.

    Returns:
        Codes and places, contiguous or channels-last as `codes` are.

    Example:
        >>> codes = torch.tensor([[[3, 7, 7, 1]]], dtype=torch.uint8)
        >>> max_pool_codes(codes, Windows.of(1, 3, 1))
        Pooled(codes=tensor([[[7, 7]]], dtype=torch.uint8), places=tensor([[[1, 0]]], dtype=torch.uint8))
    """
    volumes = _as_volumes(codes, windows.num_dims)
    shape = (*volumes.shape[:2], *windows.output_size(_size(volumes)))
    if native.takes(volumes):
        pooled = native.max_pool_codes(volumes, shape, windows, table, _memory_format(volumes))
    else:
        pooled = _aten_codes(volumes, windows, table)
    return Pooled(*(_as_given(part, codes, windows.num_dims) for part in pooled))


def max_pool_grad(grad: Tensor, places: Tensor, windows: Windows, like: Tensor) -> Tensor:
    """Return the gradient of a pooling's input: each output's goes to the place that it came from.

    Sums are taken window by window in scan order, in the dtype of `grad`.

    Args:
        grad: of the output, any float dtype and layout.
        places: as `max_pool_codes` gave them.
        windows: as there.
        like: a tensor of the input's shape and layout and the dtype of `grad`; not read.

    Returns:
        Shape of `like`, contiguous or channels-last as that is.
    """
    dims = windows.num_dims
    input_volumes = _as_volumes(like, dims)
    memory_format = _memory_format(input_volumes)
    places, grad = (_as_volumes(x, dims).contiguous(memory_format=memory_format) for x in (places, grad))
    if grad.dtype in native.GRADIENTS and native.takes(grad, places):
        dx = native.max_pool_grad(grad, places, input_volumes, windows, memory_format)
    else:
        dx = _aten_grad(grad, places, windows, input_volumes)
    return _as_given(dx, like, dims)


def _as_volumes(x: Tensor, num_dims: int) -> Tensor:
    """Return `x` as `(N, C, D, H, W)`, dense; a view if it is dense."""
    x = x if x.dim() == num_dims + 2 else x.unsqueeze(0)
    memory_format = _memory_format(x)
    for _ in range(3 - num_dims):
        x = x.unsqueeze(2)
    return x.contiguous(memory_format=memory_format)


def _as_given(volumes: Tensor, given: Tensor, num_dims: int) -> Tensor:
    for _ in range(3 - num_dims):
        volumes = volumes.squeeze(2)
    return volumes if given.dim() == num_dims + 2 else volumes.squeeze(0)


def _memory_format(x: Tensor) -> torch.memory_format:
    """Return the format of the volumes that `x`, with N and C in front, becomes."""
    is_channels_last = x.shape[1] > 1 and memory_order(x)[-1] == 1
    return torch.channels_last_3d if is_channels_last else torch.contiguous_format


def _size(volumes: Tensor) -> Triple:
    depth, height, width = volumes.shape[2:]
    return depth, height, width


def _aten_codes(volumes: Tensor, windows: Windows, table: Tensor | None) -> tuple[Tensor, Tensor]:
    if table is not None:
        volumes = table[volumes.view(torch.uint8).long()].view(volumes.dtype)
    # float16 holds every code, and is pooled on every device.
    values, indices = aten.max_pool3d_with_indices(volumes.half(), *windows[1:])
    return values.to(volumes.dtype), _places(indices, windows, _size(volumes))


def _aten_grad(
    grad: Tensor,
    places: Tensor,
    windows: Windows,
    like: Tensor,
) -> Tensor:
    indices = _indices(places, windows, _size(like))
    return aten.max_pool3d_with_indices_backward(grad, like, *windows[1:], indices)


def _starts(windows: Windows, output: Sequence[int], device: torch.device) -> list[Tensor]:
    """Return where the windows of an output start, for each dimension; broadcast over `(D, H, W)`."""
    steps = (torch.arange(count, device=device) for count in output)
    starts = [step * s - p for step, s, p in zip(steps, windows.stride, windows.padding, strict=True)]
    return [start.view([-1 if dim == at else 1 for at in range(3)]) for dim, start in enumerate(starts)]


def _places(indices: Tensor, windows: Windows, size: Triple) -> Tensor:
    depth, height, width = _starts(windows, indices.shape[2:], indices.device)
    coordinates = (indices // (size[1] * size[2]), indices // size[2] % size[1], indices % size[2])
    kd, kh, kw = (
        (at - start) // step
        for at, start, step in zip(coordinates, (depth, height, width), windows.dilation, strict=True)
    )
    return ((kd * windows.kernel[1] + kh) * windows.kernel[2] + kw).to(torch.uint8)


def _indices(places: Tensor, windows: Windows, size: Triple) -> Tensor:
    depth, height, width = _starts(windows, places.shape[2:], places.device)
    wide = places.long()
    _, num_rows, num_columns = windows.kernel
    kd, kh, kw = wide // (num_rows * num_columns), wide // num_columns % num_rows, wide % num_columns
    d, h, w = (
        start + place * step
        for start, place, step in zip((depth, height, width), (kd, kh, kw), windows.dilation, strict=True)
    )
    return (d * size[1] + h) * size[2] + w
