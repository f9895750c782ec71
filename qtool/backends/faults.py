"""Convolutions that a backend's kernel must never be given: they stay float there, with the fault as the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.record import GroupedFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.backends.record import Backend, TransposedFault
    from qtool.types import Op


def conv_fault(backend: Backend, op: Op, weight_shape: Sequence[int], groups: int) -> str:
    """Return why a convolution must not run in int8 on a backend, or an empty string.

    Stride, padding and dilation are left out of account: of some of them a fault does not come true, but a rule with
    few conditions is easier to trust.

    Args:
        backend: what would run it.
        op: the op pattern.
        weight_shape: (out, in / groups, *kernel); of a transposed convolution (in, out / groups, *kernel).
        groups: number of groups.

    Raises:
        RangeError: the op is unknown.

    Example:
        >>> conv_fault(backend("fbgemm"), Op.CONV2D, (20, 4, 3, 3), groups=5)
        "fbgemm's kernel for few channels per group writes behind its buffers and crashes the process"
        >>> conv_fault(backend("fbgemm"), Op.CONV2D, (32, 4, 3, 3), groups=8)
        ''
        >>> conv_fault(backend("fbgemm"), Op.CONV_TRANSPOSE2D, (16, 8, 2, 2), groups=1)
        "fbgemm's kernel for transposed convolutions with a window of height 2 gives other numbers"
    """
    for fault in backend.rule(op).faults:
        has_it = _leaves_channels_over if isinstance(fault, GroupedFault) else _takes_the_direct_kernel
        if has_it(fault, weight_shape, groups):  # type: ignore[arg-type]
            return fault.what
    return ""


def _leaves_channels_over(fault: GroupedFault, weight_shape: Sequence[int], groups: int) -> bool:
    num_channels, per_group, *kernel = weight_shape
    has_as_many_outputs = num_channels == per_group * groups
    is_left_over = num_channels > fault.multiple_of and num_channels % fault.multiple_of != 0
    is_its_shape = tuple(kernel) == fault.kernel and per_group in fault.channels_per_group and has_as_many_outputs
    return groups > 1 and is_its_shape and is_left_over


def _takes_the_direct_kernel(fault: TransposedFault, weight_shape: Sequence[int], groups: int) -> bool:
    num_inputs, num_outputs, height, *_ = weight_shape
    fits = num_inputs % fault.multiple_of == 0 and num_outputs % fault.multiple_of == 0
    return groups == 1 and height == fault.kernel_height and fits
