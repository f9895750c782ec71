"""Where a gradient passes, in as little memory as it takes: nothing, the indices of what is blocked, or bits.

Bit k of byte i is element 8 * i + k, in the order in which the elements lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.kernels.bits import BITS, blocked_indices, index_dtype, pack_bits, select
from qtool.numerics.layout import flatten_as_stored, memory_order, restore_from_stored

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class Mask:
    """One boolean an element. What it stores is a plain tensor or none, so that an autograd function can save it.

    Attributes:
        stored: None: the gradient passes everywhere. int32 or int64 `(n,)`, sorted: the elements that are blocked.
            uint8 `(ceil(numel / 8),)`: a bit an element, 1 where it passes.
        shape: of the tensor that it belongs to.
        order: `memory_order` of that tensor: how its elements are numbered.
    """

    stored: Tensor | None
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, tensors: tuple[Tensor, ...], like: Tensor) -> Self:
        """Return the mask with `mask.tensors() == tensors` that belongs to a tensor laid out as `like`."""
        return cls(tensors[0] if tensors else None, tuple(like.shape), tuple(memory_order(like)))

    @classmethod
    def from_bool(cls, passes: Tensor) -> Self:
        """Return the mask of a dense boolean tensor, in the kind that takes the least memory.

        Example:
            >>> Mask.from_bool(torch.arange(1000) != 7).stored
            tensor([7], dtype=torch.int32)
        """
        flat = flatten_as_stored(passes)
        # To ask how much is blocked waits for the device, and breaks a traced graph: only on the CPU.
        can_ask = passes.device.type == "cpu" and not torch.compiler.is_compiling()
        return cls.from_bits(pack_bits(flat), flat.numel() - int(flat.sum()) if can_ask else None, passes)

    @classmethod
    def from_bits(cls, bits: Tensor, num_blocked: int | None, like: Tensor) -> Self:
        """Return the mask in the kind that takes the least memory.

        Args:
            bits: uint8, a bit for each element of `like` as they lie in memory.
            num_blocked: how many are 0; None if that is not known.
            like: any tensor laid out as the one that the mask belongs to.
        """
        if num_blocked == 0:
            return cls.of((), like)
        if num_blocked is not None and is_sparse(num_blocked, like.numel()):
            return cls.of((blocked_indices(bits, like.numel(), num_blocked),), like)
        return cls.of((bits,), like)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return what has to be saved: one tensor or none."""
        return () if self.stored is None else (self.stored,)

    def apply(self, grad: Tensor) -> Tensor:
        """Return `grad` where it passes and 0 elsewhere, also where it is NaN or infinite; `grad` is not changed.

        Args:
            grad: shape of the mask, any dtype and layout.

        Returns:
            `grad` itself if everything passes.
        """
        if self.stored is None:
            return grad
        flat = grad.permute(self.order).reshape(-1)
        if self.stored.dtype == torch.uint8:
            flat = select(flat, self.stored)
        else:
            flat = flat.index_fill(0, self.stored.long(), 0.0)
        return restore_from_stored(flat, self.shape, list(self.order))

    def to_bool(self) -> Tensor:
        """Return the mask as a boolean tensor, on the device of what is stored."""
        device = None if self.stored is None else self.stored.device
        return self.apply(torch.ones(self.shape, device=device)).bool()

    @property
    def bits_per_element(self) -> float:
        """Bits stored per element; 0 of nothing."""
        if self.stored is None:
            return 0.0
        return BITS * self.stored.nbytes / max(torch.Size(self.shape).numel(), 1)


def is_sparse(num_blocked: int, num_elements: int) -> bool:
    """Return whether indices take less memory than bits.

    Example:
        >>> is_sparse(31, 1000), is_sparse(32, 1000)
        (True, False)
    """
    return num_blocked * index_dtype(num_elements).itemsize < (num_elements + BITS - 1) // BITS
