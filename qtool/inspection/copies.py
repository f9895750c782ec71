"""Finds float tensors that hold what an int8 weight holds too: they make a file larger than it was in float."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from qtool.inspection.findings import FloatCopy
from qtool.inspection.numbers import flat_numbers, read_whole
from qtool.readers.facts import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qtool.inspection.meter import Meter
    from qtool.readers.facts import ModelFacts, Node, Quantization, Tensor

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_LOOKED_AT: Final = 4096
_MARGIN: Final = 1.0
"""In steps: a value is at most half of one from its code, and bfloat16 rounds the largest by half of one."""


@np.errstate(all="ignore")
def float_copies(model: ModelFacts, meter: Meter) -> tuple[FloatCopy, ...]:
    """Return the float tensors that belong to no node and have shape and values of a quantized weight.

    Looked at are the first 4096 values; each must be within a step of what its code stands for, or beyond all codes.
    """
    used = {operand.tensor.place for node in model.nodes for operand in node.operands if operand.tensor is not None}
    free: dict[tuple[int, ...], list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.dtype in _FLOATS and len(tensor.shape) > 1 and tensor.place not in used:
            free.setdefault(tensor.shape, []).append(tensor)
    found = (_copy(node, free, meter) for node in model.nodes) if free else ()
    return tuple(copy for copy in found if copy is not None)


def _copy(node: Node, free: dict[tuple[int, ...], list[Tensor]], meter: Meter) -> FloatCopy | None:
    weight = node.operand(Role.WEIGHT)
    if weight is None or weight.tensor is None or weight.tensor.shape not in free:
        return None
    codes = weight.quantization or weight.tensor.quantization
    decoded = None if codes is None else _decoded(weight.tensor, codes, meter)
    if decoded is None:
        return None
    lowest, highest = decoded
    for tensor in free[weight.tensor.shape]:
        values = _first(tensor, meter)
        if values is not None and ((values >= lowest) & (values <= highest)).all():
            return FloatCopy(node=node.name, tensor=tensor.name, num_bytes=tensor.num_bytes)
    return None


def _decoded(weight: Tensor, codes: Quantization, meter: Meter) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return the floats below and above which values have other codes than the weight's first ones."""
    stored, scale = _first(weight, meter), flat_numbers(meter, codes.scale)
    zero_point = np.zeros(1) if codes.zero_point == () else flat_numbers(meter, codes.zero_point)
    if stored is None or scale is None or zero_point is None or codes.group_size is not None:
        return None
    if scale.size > 1:
        axis = codes.axis if codes.axis is not None and 0 <= codes.axis < len(weight.shape) else -1
        if axis < 0 or weight.shape[axis] != scale.size:
            return None
        channel = np.unravel_index(np.arange(stored.size), weight.shape)[axis]
        scale, zero_point = scale[channel], zero_point[channel] if zero_point.size == scale.size else zero_point
    if zero_point.size not in (1, stored.size) or scale.size not in (1, stored.size):
        return None
    lowest = np.where(stored <= codes.qmin, -np.inf, (stored - zero_point - _MARGIN) * scale)
    highest = np.where(stored >= codes.qmax, np.inf, (stored - zero_point + _MARGIN) * scale)
    return lowest, highest


def _first(tensor: Tensor, meter: Meter) -> NDArray[np.float64] | None:
    """Return the first values of a tensor in C order, flat."""
    if tensor.place is None or tensor.strides is not None or tensor.place.num_bytes != tensor.num_bytes:
        return None
    number = min(_LOOKED_AT, tensor.num_elements)
    num_bytes = number * (tensor.num_bytes // max(1, tensor.num_elements))
    part = dataclasses.replace(tensor, shape=(number,), place=dataclasses.replace(tensor.place, num_bytes=num_bytes))
    values = read_whole(meter, part)
    return None if values is None else values.astype(np.float64)
