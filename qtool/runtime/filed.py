"""Models that a file can hold: copied and pickled by way of the bytes that `save` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Filed(nn.Module):
    """A module whose `copy.deepcopy` and `pickle` give what saving and loading it gives, in the same mode.

    Gradients and hooks are not copied: no file holds them.
    What torch.export makes can do neither: its fake tensors have no data, and what belongs to them no pickle.
    """

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., nn.Module], tuple[bytes], dict[str, Any]]:
        """Return how to make the model again: from its bytes, and what they do not say."""
        from qtool.runtime.store import from_bytes, to_bytes  # noqa: PLC0415 - the store is made of these models

        return from_bytes, (to_bytes(self),), self.state_beside_file()  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take on what the bytes do not say."""
        self.train(state["training"])

    def state_beside_file(self) -> dict[str, Any]:
        """Return what a file does not say of the model, as plain data."""
        return {"training": self.training}
