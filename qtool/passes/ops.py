"""Which ATen ops belong to which int8 pattern, and why an op does not.

A node is looked at alone here; `match.py` joins neighbours into patterns, `annotate.py` decides what runs in int8.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from qtool.capture.view_inverse import SPLITS
from qtool.types import MAC_OPS, Op

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

PATTERNS: dict[Any, Op] = {
    aten.conv1d.default: Op.CONV1D,
    aten.conv2d.default: Op.CONV2D,
    aten.conv3d.default: Op.CONV3D,
    aten.conv_transpose1d.default: Op.CONV_TRANSPOSE1D,
    aten.conv_transpose2d.input: Op.CONV_TRANSPOSE2D,
    aten.linear.default: Op.LINEAR,
    aten.add.Tensor: Op.ADD,
    aten.mul.Tensor: Op.MUL,
    aten.cat.default: Op.CAT,
    aten.stack.default: Op.CAT,
    aten.max_pool1d.default: Op.MAX_POOL,
    aten.max_pool2d.default: Op.MAX_POOL,
    aten.max_pool3d.default: Op.MAX_POOL,
    aten.avg_pool1d.default: Op.AVG_POOL,
    aten.avg_pool2d.default: Op.AVG_POOL,
    aten.avg_pool3d.default: Op.AVG_POOL,
    aten.adaptive_avg_pool1d.default: Op.AVG_POOL,
    aten.adaptive_avg_pool2d.default: Op.AVG_POOL,
    aten.adaptive_avg_pool3d.default: Op.AVG_POOL,
    aten.mean.dim: Op.MEAN,
    aten.upsample_linear1d.vec: Op.INTERPOLATE,
    aten.upsample_bilinear2d.vec: Op.INTERPOLATE,
    aten.upsample_trilinear3d.vec: Op.INTERPOLATE,
    aten.sigmoid.default: Op.SIGMOID,
    aten.hardsigmoid.default: Op.HARDSIGMOID,
    aten.tanh.default: Op.TANH,
    aten.softmax.int: Op.SOFTMAX,
    aten.hardswish.default: Op.HARDSWISH,
    aten.leaky_relu.default: Op.LEAKY_RELU,
    aten.relu.default: Op.ACTIVATION,
    aten.relu6.default: Op.ACTIVATION,
    aten.hardtanh.default: Op.ACTIVATION,
    aten.clamp.default: Op.ACTIVATION,
    aten.clamp_min.default: Op.ACTIVATION,
    **dict.fromkeys(
        (
            aten.view.default,
            aten.reshape.default,
            aten.view_as.default,
            aten.reshape_as.default,
            aten._unsafe_view.default,
            aten.flatten.using_ints,
            aten.unflatten.int,
            aten.permute.default,
            aten.transpose.int,
            aten.t.default,
            aten.squeeze.default,
            aten.squeeze.dim,
            aten.squeeze.dims,
            aten.unsqueeze.default,
            aten.slice.Tensor,
            aten.select.int,
            aten.narrow.default,
            aten.split.Tensor,
            aten.split_with_sizes.default,
            aten.chunk.default,
            aten.expand.default,
            aten.contiguous.default,
            aten.clone.default,
            aten.alias.default,
            aten.detach.default,
            aten.pad.default,
            aten.constant_pad_nd.default,
            aten.pixel_shuffle.default,
            aten.pixel_unshuffle.default,
            aten.channel_shuffle.default,
            aten.upsample_nearest1d.vec,
            aten.upsample_nearest2d.vec,
            aten.upsample_nearest3d.vec,
            aten._upsample_nearest_exact1d.vec,
            aten._upsample_nearest_exact2d.vec,
            aten._upsample_nearest_exact3d.vec,
            aten.flip.default,
            aten.roll.default,
            aten.repeat.default,
            aten.movedim.int,
            aten.swapaxes.default,
            operator.getitem,
        ),
        Op.LAYOUT,
    ),
}

FLOAT_REASONS: dict[Any, str] = {
    aten.conv_transpose3d.input: "no engine's int8 kernel for transposed convolutions of three dimensions is measured",
    aten.prelu.default: "torch's int8 kernel for prelu scales positive values too, where the slopes are small",
    **dict.fromkeys(
        (aten.matmul.default, aten.bmm.default, aten.mm.default),
        "both factors come from the input, and int8 kernels multiply with a stored weight",
    ),
    **dict.fromkeys(
        (aten.silu.default, aten.gelu.default, aten.sub.Tensor, aten.div.Tensor, aten.upsample_bicubic2d.vec),
        "no engine has an int8 kernel for it",
    ),
    aten.embedding.default: "it looks rows up, which is no arithmetic; its table stays float",
}
"""Ops that people ask about, each with why it stays float."""

ACTIVATION_NAMES: dict[Any, str] = {
    aten.relu.default: "relu",
    aten.relu6.default: "relu6",
    aten.hardtanh.default: "hardtanh",
    aten.clamp.default: "hardtanh",
    aten.clamp_min.default: "hardtanh",
}

SHARING = frozenset({Op.CAT, Op.MAX_POOL, Op.ACTIVATION, Op.LAYOUT})
"""Patterns whose output has its inputs' scale and zero point: they move, choose or clamp values."""


def classify(node: Node) -> tuple[Op | None, str]:
    """Return the int8 pattern of one op, or None and the reason why it has none."""
    op = PATTERNS.get(node.target)
    if op is None:
        why = FLOAT_REASONS.get(node.target)
        return None, f"{node.target} has no int8 pattern{f': {why}' if why else ''}"
    if not _is_float(node):
        return None, "its values are not float32"
    check = _CHECKS.get(op)
    reason = check(node) if check else ""
    return (None, reason) if reason else (op, "")


def value_inputs(node: Node, op: Op) -> tuple[Node, ...]:
    """Return the nodes whose values the pattern reads, in argument order: weights and sizes are not among them."""
    if op is Op.CAT:
        return tuple(node.args[0])  # type: ignore[arg-type]
    if op in (Op.ADD, Op.MUL):
        return (node.args[0], node.args[1])  # type: ignore[return-value]
    source: Any = node.args[0]
    return (source.args[0],) if node.target is operator.getitem else (source,)


def clamp_bounds(node: Node) -> tuple[float | None, float | None]:
    """Return the lower and upper bound of an activation; None where there is none.

    Example:
        relu: (0.0, None); relu6: (0.0, 6.0); hardtanh(-1, 1): (-1.0, 1.0).
    """
    if node.target is aten.relu.default:
        return 0.0, None
    if node.target is aten.relu6.default:
        return 0.0, 6.0
    low = argument(node, 1, "min_val" if node.target is aten.hardtanh.default else "min")
    high = argument(node, 2, "max_val" if node.target is aten.hardtanh.default else "max")
    if node.target is aten.hardtanh.default:
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    return None if low is None else float(low), None if high is None else float(high)


def value(node: Node) -> Any:  # noqa: ANN401 - a fake tensor, a list of them, or a number
    """Return what the graph knows of the node's value: a tensor without data."""
    return node.meta.get("val")


def is_floating(node: Node) -> bool:
    """Whether the node's value is a tensor of any float dtype."""
    found = value(node)
    return isinstance(found, torch.Tensor) and found.is_floating_point()


def argument(node: Node, index: int, name: str, default: Any = None) -> Any:  # noqa: ANN401
    """Return an op's argument, given by position or by name, or its default."""
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _is_float(node: Node) -> bool:
    found = value(node)
    found = found[0] if isinstance(found, (list, tuple)) and found else found
    return isinstance(found, torch.Tensor) and found.dtype is torch.float32


def _mac_reason(node: Node) -> str:
    weight = node.args[1]
    if not isinstance(weight, Node) or weight.op != "get_attr":
        return "its weight is computed while the model runs"
    bias = argument(node, 2, "bias")
    if bias is not None and (not isinstance(bias, Node) or bias.op != "get_attr"):
        return "its bias is computed while the model runs"
    return "its weight is empty" if value(weight).numel() == 0 else ""


def _pair_reason(node: Node) -> str:
    operands: list[Any] = list(node.args[:2])
    if not all(isinstance(operand, Node) for operand in operands):
        return "one operand is a number"
    if any(operand.op == "get_attr" for operand in operands):
        return "one operand is a constant of the model"
    if not all(_is_float(operand) for operand in operands):
        return "its values are not float32"
    if argument(node, 2, "alpha", 1) != 1:
        return "alpha is not 1"
    return ""


def _cat_reason(node: Node) -> str:
    parts: Any = node.args[0]
    if not all(isinstance(part, Node) and _is_float(part) for part in parts):
        return "its values are not float32"
    return "one part is a constant of the model" if any(part.op == "get_attr" for part in parts) else ""


def _mean_reason(node: Node) -> str:
    return "it changes the dtype" if node.kwargs.get("dtype") is not None else ""


def _softmax_reason(node: Node) -> str:
    return "it changes the dtype" if argument(node, 2, "dtype") is not None else ""


def _activation_reason(node: Node) -> str:
    if any(isinstance(argument, Node) for argument in node.args[1:]):
        return "its bounds are computed while the model runs"
    return "it clamps nothing" if clamp_bounds(node) == (None, None) else ""


def _layout_reason(node: Node) -> str:
    if node.target is operator.getitem:
        source = node.args[0]
        is_piece = isinstance(source, Node) and source.target in SPLITS and isinstance(node.args[1], int)
        return "" if is_piece else f"{source} is no list of slices"
    source = node.args[0]
    if isinstance(source, Node) and source.op == "get_attr":
        return "it moves a constant of the model"
    return _pad_reason(node) if pad_mode(node) else ""


def pad_mode(node: Node) -> Any:  # noqa: ANN401 - an argument of the node
    """Return the mode of a pad: `constant`, or one that repeats values of its input; None for other ops."""
    if node.target is aten.constant_pad_nd.default:
        return "constant"
    return argument(node, 2, "mode", "constant") if node.target is aten.pad.default else None


def _pad_reason(node: Node) -> str:
    if pad_mode(node) != "constant":
        return ""
    index = 2 if node.target is aten.constant_pad_nd.default else 3
    fill = argument(node, index, "value")
    return "" if fill in (None, 0) else f"it pads with {fill}, which the input's range may not hold"


_CHECKS: dict[Op, Callable[[Node], str]] = {
    **dict.fromkeys(MAC_OPS, _mac_reason),
    Op.ADD: _pair_reason,
    Op.MUL: _pair_reason,
    Op.CAT: _cat_reason,
    Op.MEAN: _mean_reason,
    Op.SOFTMAX: _softmax_reason,
    Op.ACTIVATION: _activation_reason,
    Op.LAYOUT: _layout_reason,
}
