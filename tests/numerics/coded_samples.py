"""Tensors on a grid for the tests of functions that keep codes, and what autograd keeps of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qtool.numerics.coded import Coded
from qtool.numerics.grid import Grid
from qtool.numerics.kernels.fake_quantize import decode

if TYPE_CHECKING:
    from collections.abc import Callable

GRID = Grid(torch.tensor(0.03), torch.tensor(110, dtype=torch.int32), 0, 255)
SIGNED = Grid(torch.tensor(0.05), torch.tensor(-7, dtype=torch.int32), -128, 127)


def random_coded(
    *shape: int,
    grid: Grid = GRID,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.contiguous_format,
    seed: int = 0,
) -> Coded:
    """Return random values on a grid with their codes; the values want a gradient."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(grid.qmin, grid.qmax + 1, shape, generator=generator).to(grid.code_dtype)
    codes = codes.contiguous(memory_format=memory_format)
    return Coded(decode(codes, grid, dtype).requires_grad_(), codes, grid)


def bytes_saved(run: Callable[[], Any], *, besides: tuple[Tensor, ...] = ()) -> int:
    """Return the bytes of the distinct storages that autograd saves in `run`, without those of `besides`."""
    known = {tensor.untyped_storage().data_ptr() for tensor in besides}
    storages: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()
    sizes = [tensor.untyped_storage().nbytes() for address, tensor in storages.items() if address not in known]
    del kept
    return sum(sizes)


def same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether two tensors are equal in dtype, shape and bits; NaN equals itself."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())
