"""Booleans at one bit an element: bit k of byte i is element 8 * i + k."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from qtool.numerics.kernels import native
from qtool.numerics.kernels.allocate import allocate_like

BITS = 8
LARGEST_INT32 = 2**31 - 1


def pack_bits(passes: Tensor) -> Tensor:
    """Return the bits of a boolean row.

    Args:
        passes: bool `(n,)`; n may be 0 and may pass 2^31.

    Returns:
        uint8 `(ceil(n / 8),)`.

    Example:
        >>> pack_bits(torch.tensor([True, False, False, True, True, False, False, False, True]))
        tensor([25,  1], dtype=torch.uint8)
    """
    octets = pad(passes.view(torch.uint8), (0, -passes.numel() % BITS)).view(-1, BITS)
    packed = octets[:, 0].clone()
    for bit in range(1, BITS):
        packed |= octets[:, bit] << bit
    return packed


def unpack_bits(packed: Tensor, num_elements: int) -> Tensor:
    """Return the boolean row that `pack_bits` packed.

    Args:
        packed: uint8 `(ceil(num_elements / 8),)`.
        num_elements: length of the row.

    Returns:
        bool `(num_elements,)`.

    Example:
        >>> unpack_bits(torch.tensor([5], dtype=torch.uint8), 3)
        tensor([ True, False,  True])
    """
    shifts = torch.arange(BITS, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(1) >> shifts) & 1).view(torch.bool).view(-1)[:num_elements]


def select(row: Tensor, bits: Tensor) -> Tensor:
    """Return a new row with the elements of `row` where the bit is 1, and 0 elsewhere.

    Args:
        row: any float dtype, `(n,)`.
        bits: uint8 `(ceil(n / 8),)`.

    Example:
        >>> select(torch.tensor([1.0, float("nan")]), torch.tensor([1], dtype=torch.uint8))
        tensor([1., 0.])
    """
    if row.itemsize in (2, 4, 8) and row.is_contiguous() and bits.is_contiguous() and native.takes(row, bits):
        selected, count = allocate_like(row), row.numel()
        native.functions().qtool_select(
            row.data_ptr(), selected.data_ptr(), bits.data_ptr(), count, row.itemsize, native.threads_for(count)
        )
        return selected
    return row.where(unpack_bits(bits, row.numel()), 0.0)


def blocked_indices(bits: Tensor, num_elements: int, num_blocked: int) -> Tensor:
    """Return the indices of the bits that are 0, sorted; int32, or int64 where that is too small.

    Args:
        bits: uint8 `(ceil(num_elements / 8),)`.
        num_elements: how many bits count.
        num_blocked: how many of them are 0.

    Example:
        >>> blocked_indices(torch.tensor([5], dtype=torch.uint8), 3, 1)
        tensor([1], dtype=torch.int32)
    """
    dtype = index_dtype(num_elements)
    if native.takes(bits):
        indices = torch.empty(num_blocked, dtype=dtype)
        native.functions().qtool_blocked_indices(
            bits.data_ptr(), num_elements, indices.data_ptr(), dtype == torch.int64
        )
        return indices
    return (~unpack_bits(bits, num_elements)).nonzero().view(-1).to(dtype)


def index_dtype(num_elements: int) -> torch.dtype:
    """Return the dtype of indices into that many elements."""
    return torch.int32 if num_elements <= LARGEST_INT32 else torch.int64
