"""Booleans at one bit an element.

The n elements are cut into eight runs of `ceil(n / 8)`; bit k of byte i is element i of run k. Packing and
unpacking are then a few shifts over contiguous bytes on every device, and the byte order of the machine is no
matter.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BITS = 8


def pack_mask(mask: Tensor) -> Tensor:
    """Return the bits of a boolean row.

    Args:
        mask: bool `(n,)`, contiguous; n may be 0 and may pass 2^31.

    Returns:
        uint8 `(ceil(n / 8),)`.

    Example:
        >>> pack_mask(torch.tensor([True, False, False, True, True, False, False, False, True]))
        tensor([21,  2], dtype=torch.uint8)
    """
    num_bytes = (mask.numel() + BITS - 1) // BITS
    runs = pad(mask.view(torch.uint8), (0, num_bytes * BITS - mask.numel())).view(BITS, num_bytes)
    packed = runs[0].clone()
    for bit in range(1, BITS):
        packed |= runs[bit] << bit
    return packed


def unpack_mask(packed: Tensor, num_elements: int) -> Tensor:
    """Return the boolean row that `pack_mask` packed.

    Args:
        packed: uint8 `(ceil(num_elements / 8),)`.
        num_elements: length of the row.

    Returns:
        bool `(num_elements,)`.

    Example:
        >>> unpack_mask(torch.tensor([5], dtype=torch.uint8), 3)
        tensor([ True, False,  True])
    """
    shifts = torch.arange(BITS, dtype=torch.uint8, device=packed.device).unsqueeze(1)
    return ((packed >> shifts) & 1).view(torch.bool).view(-1)[:num_elements]
