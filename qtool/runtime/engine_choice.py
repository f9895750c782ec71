"""Which engine runs a model here, and whether its numbers will be right on this CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.host import host_facts
from qtool.backends.ranges import would_saturate
from qtool.backends.registry import backend as find_backend
from qtool.errors import MismatchError, UsageError
from qtool.lowering.engine_switch import check_engine

if TYPE_CHECKING:
    from qtool.stamp.schema import Stamp


def choose_engine(stamp: Stamp, engine: str | None) -> str:
    """Return the engine that is to run a model: the one asked for, or that of the stamped backend.

    Raises:
        UsageError: no such engine, or the backend has none in torch.
        MissingEngineError: this torch does not have it.
        MismatchError: some nodes would saturate silently with this engine on this CPU; they are named.
    """
    name = engine or stamp.backends[0]
    record = find_backend(name)
    if record.engine is None:
        msg = f"backend {name!r} runs in {record.runtime}, not in torch: evaluate with --engine, or export the model"
        raise UsageError(msg)
    check_engine(record.engine)
    _check_saturation(stamp, name)
    return record.engine


def _check_saturation(stamp: Stamp, backend: str) -> None:
    record = find_backend(backend)
    isa = host_facts().isa_of(backend)
    wrong = [
        node.name
        for node in stamp.int8_nodes()
        if node.requires_full_range
        and node.op is not None
        and would_saturate(record, isa, node.op, depthwise=node.depthwise, channel_multiplier=node.channel_multiplier)
    ]
    if wrong:
        msg = (
            f"{_few(wrong)} would saturate without a message: they were made for {_made_for(stamp)}, and {backend} "
            f"on this CPU ({isa}) adds products in int16. Run on qnnpack (--engine qnnpack; in Python "
            f"engine='qnnpack'), or prepare the model again with target.backend: {backend} and target.isa: any"
        )
        raise MismatchError(msg)


def _few(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more nodes"


def _made_for(stamp: Stamp) -> str:
    return f"{', '.join(stamp.backends)} with isa {stamp.isa}"
