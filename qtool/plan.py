"""The plan: what becomes of every node and every quantized edge of a model, as data.

Made by `passes.annotate` from the graph, the backend and the config; read by every pass that edits the graph,
printed by `prepare --dry-run`, stored in prepared and converted files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from qtool.types import Isa, Op, Spec, Verdict


@dataclass(frozen=True, kw_only=True)
class EdgePlan:
    """One quantized value: the output of a graph node, in codes wherever an int8 node reads it.

    Attributes:
        name: the edge's name for people: that of the node or model input it comes from.
        value: the graph node whose output it is.
        spec: how it is quantized.
        group: edges of one group have one scale and zero point; named for its first edge.
    """

    name: str
    value: str
    spec: Spec
    group: str


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """The verdict on one op of the model.

    Attributes:
        name: unique: the module path, with the op's name where a module has several, and `#2` for a second call.
        op: the int8 pattern, or None where the op has none.
        target: the aten op, for example `aten.conv2d.default`.
        verdict: int8 or float.
        reason: why, in words.
        members: the graph nodes of the pattern in order: op, batch norm, activation.
        inputs: names of the quantized edges it reads, in argument order.
        output: name of the quantized edge it writes; None if its result stays float.
        weight: how its weight is quantized; None without weight.
        activation: the fused activation (`relu`, `relu6`, `hardtanh`) or None.
        depthwise: a convolution with one input channel per group.
        channel_multiplier: output channels per group of a depthwise convolution; None elsewhere, or if nobody looked.
        batch_norm: a batch norm is folded into it.
        reduce_range: its input activations are kept in a reduced range.
    """

    name: str
    op: Op | None
    target: str
    verdict: Verdict
    reason: str
    members: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    output: str | None = None
    weight: Spec | None = None
    activation: str | None = None
    depthwise: bool = False
    channel_multiplier: int | None = None
    batch_norm: bool = False
    reduce_range: bool = False


@dataclass(frozen=True, kw_only=True)
class TargetCost:
    """What a model gives up because it is made for several backends: a loss that one of them alone would not ask for.

    Attributes:
        what: the loss, in words.
        nodes: the nodes it befalls.
        backends: the backends that ask for it.
    """

    what: str
    nodes: tuple[str, ...]
    backends: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `prepare` decided for one model and one target.

    Attributes:
        backends: names of the backends the plan is for; it keeps to the rules of all of them.
        isa: the CPU it is made for.
        nodes: every op of the model in execution order.
        edges: every quantized edge in execution order.
        training_only: names of the ops that only train mode has; they are never quantized.
        costs: with several backends, what each of them costs.
    """

    backends: tuple[str, ...]
    isa: Isa
    nodes: tuple[NodePlan, ...]
    edges: tuple[EdgePlan, ...] = field(default=())
    training_only: tuple[str, ...] = ()
    costs: tuple[TargetCost, ...] = ()

    def int8_nodes(self) -> tuple[NodePlan, ...]:
        """Return the nodes that run in int8."""
        return tuple(node for node in self.nodes if node.verdict is Verdict.INT8)

    def float_islands(self) -> Counter[str]:
        """Return how many nodes stay float for each reason."""
        return Counter(node.reason for node in self.nodes if node.verdict is Verdict.FLOAT)

    def edge(self, name: str) -> EdgePlan:
        """Return the edge of that name."""
        return next(edge for edge in self.edges if edge.name == name)
