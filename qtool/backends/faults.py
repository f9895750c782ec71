"""Convolutions that a backend's kernel must never be given: they stay float there, with the fault as the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.backends.record import Backend
    from qtool.types import Op


def conv_fault(backend: Backend, op: Op, weight_shape: Sequence[int], groups: int) -> str:
    """Return why a convolution must not run in int8 on a backend, or an empty string.

    Stride, padding and dilation are left out of account: of some of them a fault does not come true, but a rule with
    few conditions is easier to trust.

    Args:
        backend: what would run it.
        op: the op pattern.
        weight_shape: (out, in / groups, *kernel).
        groups: number of groups.

    Raises:
        RangeError: the op is unknown.

    Example:
        >>> conv_fault(backend("fbgemm"), Op.CONV2D, (20, 4, 3, 3), groups=5)
        "fbgemm's kernel for few channels per group writes behind its buffers and crashes the process"
        >>> conv_fault(backend("fbgemm"), Op.CONV2D, (32, 4, 3, 3), groups=8)
        ''
    """
    num_channels, per_group, *kernel = weight_shape
    has_as_many_outputs = num_channels == per_group * groups
    for fault in backend.rule(op).faults:
        is_left_over = num_channels > fault.multiple_of and num_channels % fault.multiple_of != 0
        is_its_shape = tuple(kernel) == fault.kernel and per_group in fault.channels_per_group and has_as_many_outputs
        if groups > 1 and is_its_shape and is_left_over:
            return fault.what
    return ""
