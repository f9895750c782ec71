"""A module whose buffers keep their dtype whatever the model around it is cast to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from torch import Tensor


class FixedDtypeModule(nn.Module):
    """Base of modules with exact state: `.half()`, `.double()` and `.to(dtype)` move it but never round it."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def move_only(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            # A cast has lost bits already: take the original to where the cast one went.
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move_only, recurse)
