"""How far each layer's pair sums stay from the end of int16, on every backend, on a CPU without VNNI."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from qtool.backends import registry
from qtool.backends.ranges import would_saturate
from qtool.backends.record import Support
from qtool.saturation.verdict import Sums, deciding_bound, judge
from qtool.types import Isa

if TYPE_CHECKING:
    from qtool.backends.record import Backend
    from qtool.inspection.nodes import NodeReport
    from qtool.saturation.verdict import Layer


@dataclass(frozen=True, kw_only=True)
class Margin:
    """What one backend's kernel makes of a layer's sums.

    Attributes:
        backend: the backend.
        sums: what becomes of them.
        adds_in_int16: its kernel adds pairs of products in int16; else in int32, and nothing can be reached.
        worst_pair_sum: the possible sum of two products of largest magnitude, with its sign; None where the kernel adds
            in int32, or the weight is not known.
        num_channels: output channels that can leave int16; None likewise.
    """

    backend: str
    sums: Sums
    adds_in_int16: bool
    worst_pair_sum: int | None
    num_channels: int | None


def margins_of(node: NodeReport) -> tuple[Margin, ...]:
    """Return what becomes of a node's sums on each backend that has its op; empty where it multiplies no codes.

    Example:
        >>> [(each.backend, each.sums.value, each.worst_pair_sum) for each in margins_of(node)][:2]
        [('fbgemm', 'can_saturate', 51000), ('onednn', 'can_saturate', 51000)]
    """
    return _margins(node.layer) if node.multiplies_codes else ()


@lru_cache(maxsize=8192)
def _margins(layer: Layer) -> tuple[Margin, ...]:
    """Return them for a layer; every part of a report asks anew."""
    backends = [registry.backend(name) for name in registry.backend_names()]
    able = [each for each in backends if each.rule(layer.op).support is not Support.UNSUPPORTED]
    return tuple(_margin(each, layer) for each in able)


def _margin(backend: Backend, layer: Layer) -> Margin:
    adds_in_int16 = would_saturate(
        backend, Isa.NO_VNNI, layer.op, depthwise=layer.depthwise, channel_multiplier=layer.channel_multiplier
    )
    bound = deciding_bound(backend, layer) if adds_in_int16 else None
    return Margin(
        backend=backend.name,
        sums=judge(backend, Isa.NO_VNNI, layer).sums,
        adds_in_int16=adds_in_int16,
        worst_pair_sum=None if bound is None else bound.worst_pair_sum,
        num_channels=None if bound is None else bound.num_channels,
    )
