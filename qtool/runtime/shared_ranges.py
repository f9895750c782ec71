"""What the observers of several processes saw, brought together: each rank of a job sees data of its own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from qtool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.passes.points import ActivationPoint


def share_statistics(points: Mapping[str, ActivationPoint], group: dist.ProcessGroup | None = None) -> None:
    """Give every point, on every rank, the union of what its observers saw on all ranks; equal on all, bit for bit.

    Args:
        points: the points by edge name; every rank has the same ones.
        group: the processes; None takes all.

    Raises:
        UsageError: torch.distributed is not initialised, or the ranks do not have the same points.
    """
    if not dist.is_initialized():
        msg = "ranges are shared between processes, and torch.distributed is not initialised: call init_process_group"
        raise UsageError(msg)
    gathered: list[Any] = [None] * dist.get_world_size(group)
    mine = {name: point.observer.to_arrays() if point.has_seen_data else None for name, point in points.items()}
    dist.all_gather_object(gathered, mine, group)
    if any(seen.keys() != mine.keys() for seen in gathered):
        msg = "the ranks have different models: each must prepare the same one by the same config"
        raise UsageError(msg)
    for name, point in points.items():
        observers = []
        for seen in gathered:  # in the order of ranks, so that all merge alike
            if seen[name] is not None:
                observers.append(copy.deepcopy(point.observer))
                observers[-1].load_arrays(seen[name])
        if observers:
            first, *others = observers
            point.observer.load_arrays((first.merged(others) if others else first).to_arrays())
