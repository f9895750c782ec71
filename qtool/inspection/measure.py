"""Measures the tensors of a node in an open file: scales, zero points, weight and bias, each read once.

This is the one part of `qtool inspect` that needs numpy, so it is imported when there is a node to measure.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from qtool.errors import FileFormatError
from qtool.inspection.nodes import Faults, Measured, TensorReport
from qtool.inspection.numbers import flat_numbers, read_whole
from qtool.inspection.weights import Weighed, histogram, weigh
from qtool.readers.facts import Compute, Role
from qtool.stamp.digest import parameter_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from qtool.inspection.meter import Meter
    from qtool.readers.facts import Node, Operand, Quantization, Tensor
    from qtool.saturation.verdict import Bound

    Floats = NDArray[np.float64]
    Key = tuple[Any, ...]

_SMALLEST_NORMAL: Final = float(np.finfo(np.float32).tiny)
_INT32: Final = np.iinfo(np.int32)
_PRODUCT_TOLERANCE: Final = 1e-4
"""Relative: a product of two float32 is off by 1e-7, one of float16 scales by 1e-3, which moves a bias by as much."""


def measurer(meter: Meter) -> Callable[[Node, tuple[int, int] | None], Measured]:
    """Return what measures the nodes of a file; a weight that several nodes share is read once."""
    weighed: dict[Key, Weighed] = {}

    def measure(node: Node, ends: tuple[int, int] | None) -> Measured:
        with np.errstate(all="ignore"):  # whatever numbers a file holds: what is wrong with them is counted
            return _measured(meter, node, ends, weighed)

    return measure


@np.errstate(all="ignore")  # the bits of a stranger's numbers may be any: NaN that signal, what overflows
def _measured(meter: Meter, node: Node, ends: tuple[int, int] | None, weighed: dict[Key, Weighed]) -> Measured:
    tensors: list[TensorReport] = []
    bounds: tuple[Bound, ...] = ()
    for operand in node.operands:
        report = _with_scales(meter, _plain(node, operand), _codes_of(operand))
        if operand.role is Role.WEIGHT and operand.tensor is not None:
            key = (operand.tensor.place, operand.tensor.dtype, operand.tensor.shape, operand.tensor.strides,
                   node.op, node.groups, node.is_weight_in_out, ends, report.zero_point_min)  # fmt: skip
            if key not in weighed:
                weighed[key] = _weighed(meter, node, operand.tensor, ends, report.zero_point_min or 0)
            report, bounds = _with_weight(report, weighed[key]), weighed[key].bounds
        tensors.append(report)
    return Measured(tensors=tuple(_with_bias(meter, node, tensors)), bounds=bounds)


def _weighed(meter: Meter, node: Node, tensor: Tensor, ends: tuple[int, int] | None, zero_point: float) -> Weighed:
    try:
        return weigh(meter, node, tensor, ends, zero_point)
    except FileFormatError as error:
        meter.remember(str(error))
        return Weighed()


def _codes_of(operand: Operand) -> Quantization | None:
    return operand.quantization or (operand.tensor.quantization if operand.tensor else None)


def _plain(node: Node, operand: Operand) -> TensorReport:
    """Return what the reader says of a tensor, its numbers aside."""
    stored, codes = operand.tensor, _codes_of(operand)
    return TensorReport(
        role=operand.role,
        name=operand.name,
        dtype=codes.dtype if codes else stored.dtype if stored else "float32",
        shape=stored.shape if stored else None,
        num_bytes=stored.place.num_bytes if stored and stored.place else 0,
        is_quantized=codes is not None,
        is_in_out=operand.role is Role.WEIGHT and node.is_weight_in_out,
        qmin=codes.qmin if codes else None,
        qmax=codes.qmax if codes else None,
        axis=codes.axis if codes else None,
        group_size=codes.group_size if codes else None,
    )


def _with_scales(meter: Meter, report: TensorReport, codes: Quantization | None) -> TensorReport:
    scales = None if codes is None else flat_numbers(meter, codes.scale)
    if codes is None or scales is None or not scales.size:
        return report
    finite, is_positive = scales[np.isfinite(scales)], np.isfinite(scales) & (scales > 0)
    report = dataclasses.replace(
        report,
        num_scales=scales.size,
        scale_min=float(finite.min()) if finite.size else None,
        scale_max=float(finite.max()) if finite.size else None,
        scales=histogram(scales[is_positive], is_log=True) if meter.histograms and scales.size > 1 else None,
        faults=Faults(
            num_scales_not_positive=int((~is_positive).sum()),
            num_scales_denormal=int((is_positive & (scales < _SMALLEST_NORMAL)).sum()),
        ),
    )
    zero_points = np.zeros_like(scales) if codes.zero_point == () else flat_numbers(meter, codes.zero_point)
    return report if zero_points is None else _with_zero_points(report, codes, scales, zero_points)


def _with_zero_points(report: TensorReport, codes: Quantization, scales: Floats, zero_points: Floats) -> TensorReport:
    finite = zero_points[np.isfinite(zero_points)]
    is_inside = (zero_points >= codes.qmin) & (zero_points <= codes.qmax)
    faults = dataclasses.replace(
        report.faults,
        num_zero_points_outside=int((~is_inside).sum()),
        num_zero_points_fractional=int((finite != np.rint(finite)).sum()),
    )
    return dataclasses.replace(
        report,
        zero_point_min=float(finite.min()) if finite.size else None,
        zero_point_max=float(finite.max()) if finite.size else None,
        digest=_digest(scales, zero_points),
        faults=faults,
    )


def _digest(scales: Floats, zero_points: Floats) -> str | None:
    """Return the digest of what the stamp's is of; None of numbers that no int32 zero point can be."""
    is_int32 = np.abs(zero_points) <= _INT32.max
    if not _fit(scales, zero_points) or not is_int32.all() or not (np.abs(scales) <= np.finfo(np.float32).max).all():
        return None
    both = np.broadcast_arrays(scales.astype(np.float32), zero_points.astype(np.int32))
    return parameter_digest(*both)


def _with_weight(report: TensorReport, found: Weighed) -> TensorReport:
    faults = dataclasses.replace(
        report.faults,
        num_values_not_finite=found.num_not_finite,
        num_dead_channels=found.num_dead_channels if report.zero_point_min == report.zero_point_max else 0,
    )
    return dataclasses.replace(
        report, seen_min=found.seen_min, seen_max=found.seen_max, values=found.values, faults=faults
    )


def _with_bias(meter: Meter, node: Node, tensors: list[TensorReport]) -> list[TensorReport]:
    """Return the tensors with what is found of the bias: against the scales of input and weight, and by itself."""
    found = []
    for operand, report in zip(node.operands, tensors, strict=True):
        values = read_whole(meter, operand.tensor) if operand.role is Role.BIAS and operand.tensor else None
        if values is None:
            found.append(report)
            continue
        bias, product = values.reshape(-1).astype(np.float64), _product(meter, node)
        own = flat_numbers(meter, codes.scale) if (codes := _codes_of(operand)) else None
        faults = dataclasses.replace(
            report.faults,
            num_values_not_finite=int((~np.isfinite(bias)).sum()),
            num_scales_not_product=_num_different(own, product),
            num_biases_outside=_num_outside(bias, product, is_int32=values.dtype == np.int32),
        )
        found.append(dataclasses.replace(report, faults=faults))
    return found


def _product(meter: Meter, node: Node) -> Floats | None:
    """Return the scale of the node's sums, one or one a channel: of its input times of its weight."""
    if node.compute is not Compute.STATIC:
        return None
    scales = []
    for role in (Role.INPUT, Role.WEIGHT):
        operand = node.operand(role)
        codes = None if operand is None else _codes_of(operand)
        scale = None if codes is None or codes.group_size else flat_numbers(meter, codes.scale)
        if scale is None or not (np.isfinite(scale) & (scale > 0)).all() or not scale.size:
            return None
        scales.append(scale)
    read, weight = scales
    return read * weight if read.size == 1 else None


def _num_different(own: Floats | None, product: Floats | None) -> int:
    if own is None or product is None or not _fit(own, product):
        return 0
    return int((~(np.abs(own / product - 1) <= _PRODUCT_TOLERANCE)).sum())


def _num_outside(bias: Floats, product: Floats | None, *, is_int32: bool) -> int:
    """Return how many int32 codes stand at an end of int32, or how many floats need codes that it has not."""
    if is_int32:
        return int(((bias <= _INT32.min) | (bias >= _INT32.max)).sum())
    finite = np.where(np.isfinite(bias), bias, 0)
    if product is None or not _fit(finite, product):
        return 0
    with np.errstate(over="ignore"):
        return int((np.abs(finite / product) > _INT32.max).sum())


def _fit(one: Floats, other: Floats) -> bool:
    return one.size == other.size or 1 in (one.size, other.size)
