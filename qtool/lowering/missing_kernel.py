"""Layers that an engine's kernel must never be given: a file made for another engine may hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.faults import conv_fault
from qtool.backends.record import Support
from qtool.backends.registry import backend as find_backend
from qtool.types import Granularity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.passes.match import ConvGeometry
    from qtool.types import Op

PACKED_ENGINES = frozenset({"fbgemm", "onednn", "qnnpack"})
"""Engines with weights in an object of torch's; x86 takes plain tensors, on the kernels of oneDNN too."""


def missing_kernel(
    engine: str, op: Op, weight_shape: Sequence[int], geometry: ConvGeometry | None, *, has_scale_per_channel: bool
) -> str:
    """Return why an engine has no kernel for a layer, or an empty string.

    Args:
        engine: name of a torch engine.
        op: the op pattern.
        weight_shape: that of the stored weight.
        geometry: of a convolution; None for linear.
        has_scale_per_channel: the weight has one scale for each output channel.
    """
    record = find_backend(engine)
    rule = record.rule(op)
    if rule.support is Support.UNSUPPORTED:
        return f"it has no int8 {op}{f' ({rule.note})' if rule.note else ''}"
    if has_scale_per_channel and Granularity.CHANNEL not in rule.granularities:
        return f"its weight has a scale per channel, and the kernel of {op} takes one scale"
    if geometry is None or engine not in PACKED_ENGINES:
        return ""
    return conv_fault(record, op, weight_shape, geometry.groups)
