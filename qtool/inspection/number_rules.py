"""Rules on the numbers of one node, whatever it runs on: each is a pure function, and they stand in a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from qtool.inspection import codes
from qtool.inspection.nodes import Origin
from qtool.readers.facts import Compute, Role
from qtool.types import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.inspection.codes import Code, Finding
    from qtool.inspection.nodes import NodeReport, TensorReport

_COUNTED: Final[tuple[tuple[Code, str, str, str, str], ...]] = (
    (codes.BAD_SCALE, "num_scales_not_positive", "scale is", "scales are", "0, negative, infinite or NaN"),
    (codes.DENORMAL_SCALE, "num_scales_denormal", "scale is", "scales are", "below 2^-126, which CPUs may take for 0"),
    (codes.BAD_ZERO_POINT, "num_zero_points_outside", "zero point lies", "zero points lie", "outside its codes"),
    (codes.BAD_ZERO_POINT, "num_zero_points_fractional", "zero point is", "zero points are", "not integral"),
    (codes.BIAS_SCALE, "num_scales_not_product", "scale is", "scales are", "not the input's scale times the weight's"),
    (
        codes.BIAS_RANGE,
        "num_biases_outside",
        "value does",
        "values do",
        "not fit int32 in units of input scale times weight scale",
    ),
    (codes.DEAD_CHANNEL, "num_dead_channels", "output channel has", "output channels have", "no code but that of 0.0"),
    (codes.NOT_FINITE, "num_values_not_finite", "value is", "values are", "infinite or NaN"),
)
"""What is counted while a tensor is measured: the code, the field of `Faults`, words for one, for more, for both."""


def counted(node: NodeReport) -> Iterator[Finding]:
    """Yield what was found wrong in a tensor's numbers, with how many there are."""
    for code, field, of_one, of_more, words in _COUNTED:
        for tensor in node.tensors:
            number: int = getattr(tensor.faults, field)
            if number:
                about = _zero_points(tensor) if code is codes.BAD_ZERO_POINT else ""
                yield code.finding(
                    f"{_of(tensor)}: {number} {of_one if number == 1 else of_more} {words}{about}", node=node.name
                )


def _zero_points(tensor: TensorReport) -> str:
    if tensor.zero_point_min is None or tensor.zero_point_max is None:
        return ""
    low, high = tensor.zero_point_min, tensor.zero_point_max
    span = f"{low:g}" if low == high else f"{low:g}..{high:g}"
    return f": {span}, and its codes are {tensor.qmin}..{tensor.qmax}"


def one_code(node: NodeReport) -> Iterator[Finding]:
    """Yield a weight whose codes are all the same."""
    weight = node.tensor(Role.WEIGHT)
    if weight is None or weight.seen_min is None or math.prod(weight.shape or ()) < 2:
        return
    if weight.seen_min == weight.seen_max:
        yield codes.ONE_CODE.finding(f"{_of(weight)}: all its codes are {weight.seen_min}", node=node.name)


def axis(node: NodeReport) -> Iterator[Finding]:
    """Yield a weight whose scales are not one for each output channel: on another axis, or of another number."""
    weight = node.tensor(Role.WEIGHT)
    if weight is None or weight.shape is None or weight.axis is None or weight.granularity != "channel":
        return
    given, num_axes = weight.axis, len(weight.shape)
    wanted = _channel_axis(node, weight)
    if not -num_axes <= given < num_axes:
        problem = f"it has {num_axes} axes, and its scales lie on axis {given}"
    elif wanted is not None and given % num_axes != wanted:
        problem = f"its scales lie on axis {given}, and its output channels on axis {wanted}"
    elif weight.num_scales not in (0, weight.shape[given]):
        problem = f"it has {weight.num_scales} scales for {weight.shape[given]} channels"
    else:
        return
    yield codes.WRONG_AXIS.finding(f"{_of(weight)}: {problem}", node=node.name)


def _channel_axis(node: NodeReport, weight: TensorReport) -> int | None:
    """Return the axis of a weight's output channels; None where they lie on no single one, or it is not known."""
    if node.op in TRANSPOSED_CONVOLUTIONS:
        return 1 if node.groups == 1 else None
    if node.op is Op.LINEAR:
        return 1 if weight.is_in_out else 0
    return 0 if node.op in CONVOLUTIONS else None


def fake_quantized(node: NodeReport) -> Iterator[Finding]:
    """Yield a node that still rounds as in training; in a stamped file that is its stage."""
    if node.compute is Compute.FAKE_QUANTIZED and node.origin is not Origin.STAMPED:
        yield codes.FAKE_QUANTIZED.finding("it computes in float, on values rounded as in training", node=node.name)


def _of(tensor: TensorReport) -> str:
    return f"{tensor.role.value} {tensor.name}"


NUMBER_RULES: tuple[Callable[[NodeReport], Iterator[Finding]], ...] = (counted, one_code, axis, fake_quantized)
