"""Neighbouring ops that run as one int8 op: convolution or linear + batch norm + activation, add + relu ..."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from qtool.passes.ops import ACTIVATION_NAMES, PATTERNS, argument, clamp_bounds, classify, value, value_inputs
from qtool.passes.weight_layout import WeightLayout
from qtool.types import CONVOLUTIONS, MAC_OPS, TRANSPOSED_CONVOLUTIONS, Op

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

FUSES_ACTIVATION = MAC_OPS | {Op.ADD, Op.MUL, Op.CAT}


@dataclass(frozen=True, kw_only=True)
class Match:
    """One op of the model with what is fused into it.

    Attributes:
        op: the int8 pattern, or None.
        reason: why there is none.
        members: the graph nodes in order; the first is the op, the last gives the result.
        batch_norm: the batch norm among the members.
        activation: the activation among the members, if it is not the op itself.
    """

    op: Op | None
    reason: str
    members: tuple[Node, ...]
    batch_norm: Node | None = None
    activation: Node | None = None

    @property
    def node(self) -> Node:
        """The op itself."""
        return self.members[0]

    @property
    def result(self) -> Node:
        """The node that holds the pattern's result."""
        return self.members[-1]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose values the pattern reads."""
        return value_inputs(self.node, self.op) if self.op else ()

    @property
    def activation_name(self) -> str | None:
        """`relu`, `relu6`, `hardtanh` or None; a hardtanh of 0..6 is a relu6, one from 0 up a relu."""
        if self.activation is None:
            return None
        bounds = clamp_bounds(self.activation)
        known: dict[tuple[float | None, float | None], str] = {(0.0, None): "relu", (0.0, 6.0): "relu6"}
        return known.get(bounds, ACTIVATION_NAMES[self.activation.target])

    @property
    def is_depthwise(self) -> bool:
        """A convolution with one input channel per group, and more than one group."""
        if self.op not in CONVOLUTIONS:
            return False
        weight: Any = self.node.args[1]
        shape = value(weight).shape
        inputs_per_group = shape[0] // self.groups if self.op in TRANSPOSED_CONVOLUTIONS else shape[1]
        return self.groups > 1 and inputs_per_group == 1

    @property
    def channel_multiplier(self) -> int | None:
        """Output channels per group of a depthwise convolution; None for all else."""
        if not self.is_depthwise:
            return None
        weight: Any = self.node.args[1]
        return self.layout.num_channels(value(weight).shape) // self.groups

    @property
    def layout(self) -> WeightLayout:
        """Where the output channels of its weight lie; only for ops with a weight."""
        return WeightLayout.of(self.node)

    @property
    def groups(self) -> int:
        """Number of groups of a convolution; 1 for a linear layer."""
        return self.layout.groups


@dataclass(frozen=True, kw_only=True)
class ConvGeometry:
    """How a convolution moves over its input; one number per spatial dimension.

    Attributes:
        stride: step of the window; of a transposed convolution, of the output.
        padding: zeros around the input; of a transposed convolution, what is cut from the output.
        dilation: distance between two taps of the window.
        groups: number of groups.
        output_padding: what a transposed convolution adds at the end of its output; None for the others.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    output_padding: tuple[int, ...] | None = None

    @property
    def is_transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return self.output_padding is not None


SPATIAL_DIMS = {Op.CONV1D: 1, Op.CONV2D: 2, Op.CONV3D: 3, Op.CONV_TRANSPOSE1D: 1, Op.CONV_TRANSPOSE2D: 2}
"""Over how many dimensions a convolution's window moves."""

_CONV_ARGUMENTS = ("stride", "padding", "dilation", "groups")
_TRANSPOSED_ARGUMENTS = ("stride", "padding", "output_padding", "groups", "dilation")
_DEFAULTS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}


def conv_geometry(node: Node) -> ConvGeometry:
    """Return stride, padding, dilation and groups of a convolution's node, defaults filled in."""
    is_transposed = WeightLayout.of(node).axis == 1
    names = _TRANSPOSED_ARGUMENTS if is_transposed else _CONV_ARGUMENTS
    found = {name: argument(node, index, name, _DEFAULTS[name]) for index, name in enumerate(names, start=3)}
    rank = SPATIAL_DIMS[PATTERNS[node.target]]
    return ConvGeometry(
        stride=_per_dimension(found["stride"], rank),
        padding=_per_dimension(found["padding"], rank),
        dilation=_per_dimension(found["dilation"], rank),
        groups=int(found["groups"]),
        output_padding=_per_dimension(found["output_padding"], rank) if is_transposed else None,
    )


def _per_dimension(given: Any, rank: int) -> tuple[int, ...]:  # noqa: ANN401
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return values * rank if len(values) == 1 else values


def match_patterns(graph: fx.Graph) -> tuple[Match, ...]:
    """Return the graph's ops as patterns, in execution order; each op is in exactly one.

    Example:
        conv2d -> batch_norm -> relu, each read by nothing else, is one `conv2d` match with three members.
    """
    taken: set[Node] = set()
    matches = []
    for node in graph.nodes:
        if node.op != "call_function" or node in taken or not _is_tensor_op(node):
            continue
        match = _match(node)
        taken.update(match.members)
        matches.append(match)
    return tuple(matches)


def _is_tensor_op(node: Node) -> bool:
    found = value(node)
    if node.target is operator.getitem and not isinstance(found, torch.Tensor):
        return False
    return isinstance(found, (torch.Tensor, list, tuple))


def _match(node: Node) -> Match:
    op, reason = classify(node)
    members = [node]
    batch_norm = activation = None
    if op in MAC_OPS:
        batch_norm = _foldable_batch_norm(node, op)
        members += [batch_norm] if batch_norm else []
    if op in FUSES_ACTIVATION:
        activation = _fusable_activation(members[-1])
        members += [activation] if activation else []
    return Match(op=op, reason=reason, members=tuple(members), batch_norm=batch_norm, activation=activation)


def _only_user(node: Node) -> Node | None:
    """Return the one node that reads this one as its first argument, if nothing else reads it."""
    users = list(node.users)
    if len(users) != 1 or not users[0].args or users[0].args[0] is not node:
        return None
    return users[0] if users[0].all_input_nodes.count(node) == 1 else None


def _foldable_batch_norm(node: Node, op: Op) -> Node | None:
    user = _only_user(node)
    if user is None or user.target is not aten.batch_norm.default:
        return None
    _, gamma, beta, mean, var, is_training = user.args[:6]
    if is_training or mean is None or var is None:
        return None  # it uses the batch's own statistics
    if op is Op.LINEAR and value(node).dim() != 2:
        return None  # its channels are dimension 1, the linear layer's are the last
    constants = [argument for argument in (gamma, beta, mean, var) if argument is not None]
    return user if all(isinstance(c, Node) and c.op == "get_attr" for c in constants) else None


def _fusable_activation(node: Node) -> Node | None:
    user = _only_user(node)
    if user is None or classify(user)[0] is not Op.ACTIVATION:
        return None
    return user
