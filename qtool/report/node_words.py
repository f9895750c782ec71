"""What every form of the report says of one node, in the same words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qtool.inspection.margins import margins_of
from qtool.inspection.nodes import Origin
from qtool.readers.facts import BITS, Compute, Role
from qtool.report.quantities import count_words, span_words
from qtool.saturation.verdict import INT16_MAX, Sums

if TYPE_CHECKING:
    from qtool.inspection.margins import Margin
    from qtool.inspection.nodes import NodeReport, TensorReport

_COMPUTE_WORDS = {
    Compute.STATIC: "{codes}",
    Compute.DYNAMIC: "{codes} dynamic",
    Compute.WEIGHT_ONLY: "{codes} weights",
    Compute.FAKE_QUANTIZED: "fake-quantized",
    Compute.FLOAT: "float",
}


def pattern_words(node: NodeReport) -> str:
    """Return its op with what is fused into it, for example `depthwise conv2d + relu6`."""
    kind = "depthwise " if node.depthwise and node.op is not None else ""
    fused = f" + {node.activation}" if node.activation else ""
    return f"{kind}{node.op.value if node.op else node.target}{fused}"


def compute_words(node: NodeReport) -> str:
    """Return how it computes, for example `int8`, `int8 dynamic`, `int4 weights` or `float`."""
    if node.compute is Compute.WEIGHT_ONLY and not any(tensor.is_quantized for tensor in node.tensors):
        weight = node.tensor(Role.WEIGHT)
        return f"{weight.dtype if weight else 'packed'} weights"
    return _COMPUTE_WORDS[node.compute].format(codes=_codes_word(node))


def _codes_word(node: NodeReport) -> str:
    weight = node.tensor(Role.WEIGHT)
    quantized = [tensor for tensor in node.tensors if tensor.is_quantized]
    decides = weight if weight is not None and weight.is_quantized else next(iter(quantized), None)
    return f"int{BITS.get(decides.dtype, 8) if decides else 8}"


def stored_bytes(node: NodeReport) -> int:
    """Return what its tensors take in the file."""
    return sum(tensor.num_bytes for tensor in node.tensors)


def stored_dtype(tensor: TensorReport) -> str:
    """Return the dtype that it has in the file: a fake-quantized weight has codes of int8, and is stored as floats.

    Example:
        >>> stored_dtype(TensorReport(role=Role.WEIGHT, name="w", dtype="int8", shape=(2, 3), num_bytes=24))
        'float32'
    """
    num_elements = 0 if tensor.shape is None else math.prod(tensor.shape)
    is_float = tensor.num_bytes == num_elements * BITS["float32"] // 8 and BITS.get(tensor.dtype) != BITS["float32"]
    return "float32" if is_float and tensor.num_bytes else tensor.dtype


def codes_words(tensor: TensorReport | None) -> str:
    """Return the codes it may have, for example `uint8 0..127`; of floats their dtype."""
    if tensor is None:
        return ""
    if not tensor.is_quantized or tensor.qmin is None or tensor.qmax is None:
        return tensor.dtype
    return f"{tensor.dtype} {tensor.qmin}..{tensor.qmax}"


def input_words(node: NodeReport) -> str:
    """Return the codes of its input; that they are reduced, or that nobody knows, stands beside them."""
    words = range_words(node)
    beside = "" if words.startswith("full") else f" {words}"
    return f"{codes_words(node.tensor(Role.INPUT))}{beside}".strip()


def weight_words(weight: TensorReport | None) -> str:
    """Return the dtype and granularity of a weight, for example `int8 per channel`."""
    if weight is None:
        return ""
    return f"{weight.dtype} per {weight.granularity}" if weight.is_quantized else weight.dtype


def granularity_words(tensor: TensorReport) -> str:
    """Return how many scales it has, for example `channel, axis 0`; empty for floats."""
    if not tensor.is_quantized:
        return ""
    axis = "" if tensor.axis is None else f", axis {tensor.axis}"
    group = "" if tensor.group_size is None else f" of {tensor.group_size}"
    return f"{tensor.granularity}{group}{axis}"


def seen_words(tensor: TensorReport) -> str:
    """Return the codes it really has."""
    return span_words(tensor.seen_min, tensor.seen_max)


def range_words(node: NodeReport) -> str:
    """Return whether its input is kept in a reduced range, and how that is known where it is not stamped."""
    if node.reduce_range is None:
        return "unknown" if node.multiplies_codes else ""
    word = "reduced" if node.reduce_range else "full"
    return word if node.reduce_range_origin is Origin.STAMPED else f"{word} ({node.reduce_range_origin.value})"


def own_margins(node: NodeReport, asked: str | None = None) -> tuple[Margin, ...]:
    """Return the margins on the asked backend, else on those it was made for; on all where none of them is known."""
    margins = margins_of(node)
    backends = node.backends if asked is None else (asked,)
    return tuple(margin for margin in margins if margin.backend in backends) or margins


def worst_margin(node: NodeReport, asked: str | None = None) -> Margin | None:
    """Return the smallest of its own margins; None where no kernel adds in int16, or the weight is not known."""
    known = [margin for margin in own_margins(node, asked) if margin.worst_pair_sum is not None]
    return max(known, key=lambda each: abs(each.worst_pair_sum or 0), default=None)


def saturation_words(node: NodeReport) -> str:
    """Return what is known of int16 pair sums; nothing where no kernel of its backends has them."""
    if any(each.sums is Sums.UNKNOWN for each in own_margins(node)):
        return "full range, and the weights are not known to be safe"
    worst = worst_margin(node)
    if worst is None or worst.worst_pair_sum is None:
        return ""
    said = f"worst pair sum {worst.worst_pair_sum}"
    if worst.num_channels:
        return f"{count_words(worst.num_channels, 'channel')} can leave int16, {said}"
    return f"proved safe, {said} of {INT16_MAX}" if worst.sums is Sums.PROVED_SAFE else f"{said} of {INT16_MAX}"


def note_words(node: NodeReport) -> str:
    """Return what else is to be said: why it is float, or what its sums can reach."""
    return "; ".join(word for word in (node.why, saturation_words(node)) if word)
