"""The int8 convolutions and linear layers of a reference program: the nodes that an engine is chosen for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from qtool.capture.program import tensor_of
from qtool.lowering.grid import Grid
from qtool.passes import qdq_ops
from qtool.passes.match import conv_geometry
from qtool.passes.ops import PATTERNS
from qtool.passes.to_reference import NODE_STAMP
from qtool.passes.weight_layout import WeightLayout
from qtool.saturation.pairs import bounds_of
from qtool.saturation.verdict import Layer, reaches_past_int16
from qtool.types import MAC_OPS, TRANSPOSED_CONVOLUTIONS, Op

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import GraphModule

    from qtool.passes.match import ConvGeometry

WEIGHT_DEQUANTIZES = (qdq_ops.dequantize_per_channel, qdq_ops.dequantize_per_tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class MacNode:
    """One int8 convolution or linear layer.

    Attributes:
        name: the node's name in the graph, the key of `lower`'s engines.
        label: its name for people: that of the node stamp, or `name` where stamps were lost.
        op: the op pattern.
        input: grid of the codes that it multiplies.
        codes: int8 weight (O, I/groups, *kernel), of a transposed convolution (I, O/groups, *kernel), or (O, I).
        has_scale_per_channel: the weight has one scale for each output channel.
        geometry: of a convolution; None for linear.
    """

    name: str
    label: str
    op: Op
    input: Grid
    codes: Tensor
    has_scale_per_channel: bool
    geometry: ConvGeometry | None

    @property
    def groups(self) -> int:
        """Number of groups of a convolution; 1 for a linear layer."""
        return 1 if self.geometry is None else self.geometry.groups

    def channels_first(self) -> Tensor:
        """Return the codes as (O, I/groups, *kernel) or (O, I), those of transposed convolutions too."""
        layout = WeightLayout(axis=int(self.op in TRANSPOSED_CONVOLUTIONS), groups=self.groups)
        return layout.channels_first(self.codes)

    @cached_property
    def layer(self) -> Layer:
        """What its sums depend on, proved of its weights here; those of 7 bits need no proof."""
        groups, codes = self.groups, self.channels_first()
        depthwise = groups > 1 and codes.shape[1] == 1
        needs_proof = reaches_past_int16(self.input.qmin, self.input.qmax)
        return Layer(
            op=self.op,
            a_lo=self.input.qmin,
            a_hi=self.input.qmax,
            depthwise=depthwise,
            channel_multiplier=codes.shape[0] // groups if depthwise else None,
            bounds=bounds_of(codes.numpy(), self.input.qmin, self.input.qmax) if needs_proof else (),
        )


def mac_nodes(module: GraphModule) -> tuple[MacNode, ...]:
    """Return the nodes that multiply codes by int8 weights, in execution order.

    Args:
        module: a reference program, not lowered.
    """
    return tuple(_describe(module, node) for node in module.graph.nodes if _multiplies_codes(node))


def label_of(node: Node) -> str:
    """Return what a node of a reference program is called for people."""
    return str(node.meta.get("custom", {}).get(NODE_STAMP, {}).get("node", node.name))


def _multiplies_codes(node: Node) -> bool:
    if PATTERNS.get(node.target) not in MAC_OPS:
        return False
    x, weight = node.args[:2]
    return _target(x) is qdq_ops.dequantize_per_tensor and _target(weight) in WEIGHT_DEQUANTIZES


def _target(argument: Any) -> Any:  # noqa: ANN401 - an argument of a node, and an op
    return argument.target if isinstance(argument, Node) else None


def _describe(module: GraphModule, node: Node) -> MacNode:
    x: Any = node.args[0]
    weight: Any = node.args[1]
    codes, op = tensor_of(module, weight.args[0]), PATTERNS[node.target]
    assert codes is not None
    return MacNode(
        name=node.name,
        label=label_of(node),
        op=op,
        input=Grid.of(x),
        codes=codes.detach(),
        has_scale_per_channel=weight.target is qdq_ops.dequantize_per_channel,
        geometry=None if op is Op.LINEAR else conv_geometry(node),
    )
