"""The int8 convolutions and linear layers of a reference program: the nodes that an engine is chosen for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from qtool.passes import qdq_ops
from qtool.passes.ops import PATTERNS
from qtool.passes.to_reference import NODE_STAMP
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from torch.fx import GraphModule

WEIGHT_DEQUANTIZES = (qdq_ops.dequantize_per_channel, qdq_ops.dequantize_per_tensor)


@dataclass(frozen=True)
class MacNode:
    """One int8 convolution or linear layer.

    Attributes:
        name: the node's name in the graph, the key of `lower`'s engines.
        label: its name for people: that of the node stamp, or `name` where stamps were lost.
    """

    name: str
    label: str


def mac_nodes(module: GraphModule) -> tuple[MacNode, ...]:
    """Return the nodes that multiply codes by int8 weights, in execution order.

    Args:
        module: a reference program, not lowered.
    """
    return tuple(MacNode(node.name, label_of(node)) for node in module.graph.nodes if _multiplies_codes(node))


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
