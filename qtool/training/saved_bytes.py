"""What a forward pass leaves in memory for its backward pass, by whatever way it is kept."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn


@dataclass(frozen=True)
class Saved:
    """Storages that are alive between forward and backward, and were not before.

    Attributes:
        num_bytes: their sizes: of whole storages, of which a view may show a part.
        num_storages: how many there are.
    """

    num_bytes: int
    num_storages: int


def saved_by(forward: Callable[[], object], model: nn.Module) -> Saved:
    """Run a forward pass, and return what is alive after it and was not before; parameters and buffers are left out.

    Every tensor that Python can name is looked at: attributes and closures of autograd functions, tables of modules,
    and what hooks have packed. What autograd keeps by itself gets a name by a hook that packs it unchanged. Each
    storage counts once, however many views and savers it has. The graph is freed before this returns.

    Args:
        forward: runs the model and returns what holds the graph, such as the loss; that is counted too.
        model: whose parameters and buffers are not saved for backward, also those it makes anew.

    Example:
        >>> linear, x = torch.nn.Linear(256, 4), torch.randn(8, 256)
        >>> saved_by(lambda: linear(x * 2).sum(), linear)  # x * 2, and the loss; linear's output is kept by nobody
        Saved(num_bytes=8196, num_storages=2)
    """
    gc.collect()
    # Weak references keep an address from being used again, and nothing alive.
    before = _Storages(_tensors())
    with saved_tensors_hooks(_named, _as_it_is):
        result = forward()
    after = _Storages(_tensors())
    own = _Storages(chain(model.parameters(), model.buffers()))
    new = [size for address, size in after.sizes.items() if address not in before.sizes and address not in own.sizes]
    del result
    return Saved(num_bytes=sum(new), num_storages=len(new))


def _named(tensor: Tensor) -> Tensor:
    # A tensor that is another Python object: an output that held itself would never be freed.
    return tensor.detach()


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class _Storages:
    """Size of each storage of some tensors, by its address, which stays its own as long as this is alive."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.sizes: dict[int, int] = {}
        self._references: list[StorageWeakRef] = []
        for tensor in tensors:
            if tensor.layout is not torch.strided:
                continue  # sparse ones consist of strided ones, which Python names when they are looked at
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            if storage.device.type != "meta" and reference.cdata not in self.sizes:
                self.sizes[reference.cdata] = storage.nbytes()
                self._references.append(reference)


def _tensors() -> list[Tensor]:
    """Return every tensor that Python knows, also in reference cycles that await collection."""
    # Not isinstance, which asks objects for their class: some answer by doing work.
    return [found for found in gc.get_objects() if issubclass(type(found), Tensor)]
