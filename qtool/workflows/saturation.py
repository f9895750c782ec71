"""Counts what really saturates on data: every int16 pair sum of the layers that could, in their kernel's own order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from qtool.backends.record import Backend, Pairing
from qtool.lowering.mac_nodes import MacNode, mac_nodes
from qtool.saturation.simulate import Window, simulate
from qtool.saturation.verdict import judge
from qtool.workflows.evaluate import evaluation_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Node

    from qtool.config.schema import Config
    from qtool.data.batch import Batch
    from qtool.runtime.converted import ConvertedModel
    from qtool.types import Isa


@dataclass(kw_only=True)
class ClippedNode:
    """What the pair sums of one layer did.

    Attributes:
        node: the layer.
        pairing: which products met.
        num_sums: pair sums that were made.
        num_clipped: those that left int16.
        num_outputs: outputs that were computed.
        num_wrong: outputs whose sum is off.
    """

    node: str
    pairing: Pairing
    num_sums: int = 0
    num_clipped: int = 0
    num_outputs: int = 0
    num_wrong: int = 0

    @property
    def share(self) -> float:
        """The share of pair sums that are clipped, 0..1."""
        return self.num_clipped / self.num_sums if self.num_sums else 0.0


@torch.no_grad()
def clipped_on_data(
    model: ConvertedModel, batches: Iterable[Batch], record: Backend, isa: Isa
) -> tuple[ClippedNode, ...]:
    """Return what the pair sums of each layer that can saturate do on data, in execution order.

    Every layer sees what the reference program computes, so damage does not add up along the way. Where the kernel's
    order is not known, neighbouring channels are taken: that is what it does on the CPUs it was measured on.

    Args:
        model: a converted model.
        batches: what `Source.batches()` gives.
        record: the backend whose kernels are asked about.
        isa: the CPU they run on.
    """
    suspects = {node.name: node for node in mac_nodes(model.body) if not judge(record, isa, node.layer).is_right}
    found = {
        (name, pairing): ClippedNode(node=node.label, pairing=pairing)
        for name, node in suspects.items()
        for pairing in _orders(record, node)
    }
    tap = _Tap(model.body, suspects)
    for batch in batches:
        for name, codes in tap.codes(batch.inputs):
            for pairing in _orders(record, suspects[name]):
                _add(found[name, pairing], codes, suspects[name], pairing)
    worst: dict[str, ClippedNode] = {}
    for (name, _), counted in found.items():
        if name not in worst or counted.num_clipped > worst[name].num_clipped:
            worst[name] = counted
    return tuple(worst.values())


def clipped_from_config(model: ConvertedModel, config: Config, record: Backend, isa: Isa) -> tuple[ClippedNode, ...]:
    """Open the config's `data.evaluate` and return `clipped_on_data` of it.

    Raises:
        ConfigError: the config has no model or no `data.evaluate`.
    """
    return clipped_on_data(model, evaluation_source(config).batches(), record, isa)


def _orders(record: Backend, node: MacNode) -> tuple[Pairing, ...]:
    known = tuple(pairing for pairing in record.rule(node.op).pairings if pairing is not Pairing.ANY)
    return known or (Pairing.CHANNELS,)


def _add(counted: ClippedNode, codes: torch.Tensor, node: MacNode, pairing: Pairing) -> None:
    g = node.geometry
    window = Window()
    if g is not None:
        window = Window(
            stride=g.stride,
            padding=g.padding,
            dilation=g.dilation,
            groups=g.groups,
            output_padding=g.output_padding,
        )
    weight = node.channels_first().numpy()
    rows = codes.flatten(0, -2) if g is None else codes.reshape(-1, *codes.shape[-weight.ndim + 1 :])
    clipped = simulate(rows.numpy(), weight, window, pairing, zero_point=node.input.zero_point)
    counted.num_sums += clipped.num_sums
    counted.num_clipped += clipped.num_clipped
    counted.num_outputs += clipped.errors.size
    counted.num_wrong += int((clipped.errors != 0).sum())


class _Tap(fx.Interpreter):
    """Runs a reference program and keeps the codes that some layers read."""

    def __init__(self, module: fx.GraphModule, layers: Iterable[str]) -> None:
        super().__init__(module)
        wanted = set(layers)
        self.readers: dict[str, list[str]] = {}  # by the name of the node that makes the codes
        for node in module.graph.nodes:
            if node.name in wanted:
                self.readers.setdefault(node.args[0].args[0].name, []).append(node.name)
        self.found: list[tuple[str, torch.Tensor]] = []

    def codes(self, inputs: tuple[Any, ...]) -> list[tuple[str, torch.Tensor]]:
        """Return (name of the layer, activation codes that it reads)."""
        self.found = []
        self.run(*torch.utils._pytree.tree_leaves(inputs), enable_io_processing=False)
        return self.found

    def run_node(self, n: Node) -> Any:  # noqa: ANN401 - whatever a node computes
        result = super().run_node(n)
        self.found += [(layer, result) for layer in self.readers.get(n.name, ())]
        return result
