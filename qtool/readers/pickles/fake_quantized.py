"""Layers in quantization-aware training by torch.ao, and observers that only watch: they compute in float.

A state dict says scale and zero point of a fake-quantize module, but not its range of codes. That follows from the
limits of its observer: of an activation (high - low) / scale is the number of steps, and of a symmetric weight each
end of the range is its own limit / scale, or both are the larger limit / scale.
Source: torch/ao/quantization/fake_quantize.py and observer.py, `_calculate_qparams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role
from qtool.readers.pickles.classes import activation_of_class, op_of_class
from qtool.readers.pickles.table import bias_operands, op_of_weight, weight_operand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.pickles.table import Table

_ENABLED: Final = "fake_quant_enabled"
_WEIGHT: Final = "weight_fake_quant"
_OUTPUT: Final = "activation_post_process"
_STEPS: Final = (127, 255)
_WEIGHT_RANGES: Final = ((-128, 127), (-127, 127), (-64, 63), (-63, 63))
_TOLERANCE: Final = 1e-4
"""Relative, of a scale in float32 that was worked out from limits in float32."""

_OBSERVED: Final = frozenset({"min_val", "max_val"})
_NO_RANGE: Final = "the file does not say its range of codes: that of its dtype is assumed"


def fake_quantized_layers(table: Table, path: str) -> Iterator[Node]:
    """Yield the layer at a path whose weight or output is fake-quantized; none if there is none."""
    weight_path, output_path = _under(path, _WEIGHT), _under(path, _OUTPUT)
    has_weight, has_output = (_ENABLED in table.layers.get(each, {}) for each in (weight_path, output_path))
    is_alone = _ENABLED in table.layers[path] and _is_of_graph(path)
    if not (has_weight or has_output or is_alone):
        return
    cls = table.class_of(path)
    weight, bias = table.tensor(path, "weight"), table.tensor(path, "bias")
    operands: list[Operand] = []
    if weight is not None:
        quantization = _weight_quantization(table, weight_path) if has_weight else None
        operands = [weight_operand(weight, quantization), *bias_operands(bias)]
    if has_output or is_alone:
        operands.append(_output(table, path if is_alone else output_path))
    op = op_of_class(cls)
    yield Node(
        name=path,
        op=op_of_weight(weight, bias) if op is None and weight is not None and not cls else op,
        target=cls or "fake_quantize",
        compute=Compute.FAKE_QUANTIZED,
        operands=tuple(operands),
        activation=activation_of_class(cls),
        note=_NO_RANGE if any(_is_guess(table, each) for each in (weight_path, output_path)) else "",
    )


def is_part_of_training(table: Table, path: str) -> bool:
    """Return whether a path is inside a fake-quantized layer: its batch norm, its fake-quantize modules."""
    parent, _, last = path.rpartition(".")
    if last in (_WEIGHT, _OUTPUT) or f".{_OUTPUT}." in f".{path}." or f".{_WEIGHT}." in f".{path}.":
        return True
    return last == "bn" and _ENABLED in table.layers.get(_under(parent, _WEIGHT), {})


def has_fake_quantize(table: Table) -> bool:
    """Return whether there is a fake-quantize module of torch.ao."""
    return any(_ENABLED in layer for layer in table.layers.values())


def has_observers(table: Table) -> bool:
    """Return whether there are observers of torch.ao."""
    return any(layer.keys() >= _OBSERVED for layer in table.layers.values())


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_of_graph(path: str) -> bool:
    """Return whether a fake-quantize module is a node of a graph, `activation_post_process_3`."""
    return path.rpartition(".")[2].startswith(f"{_OUTPUT}_")


def _weight_quantization(table: Table, path: str) -> Quantization:
    scale = table.tensor(path, "scale")
    qmin, qmax = _weight_range(table, path) or (-128, 127)
    return Quantization(
        dtype="int8",
        qmin=_integer(table, path, "quant_min", qmin),
        qmax=_integer(table, path, "quant_max", qmax),
        scale=table.parameter(path, "scale"),
        zero_point=table.parameter(path, "zero_point"),
        axis=_integer(table, path, "ch_axis", 0) if scale is not None and scale.num_elements > 1 else None,
    )


def _output(table: Table, path: str) -> Operand:
    qmin = _integer(table, path, "quant_min", 0)
    qmax = _integer(table, path, "quant_max", _steps(table, path) or 255)
    quantization = Quantization(
        dtype="int8" if qmin < 0 else "uint8",
        qmin=qmin,
        qmax=qmax,
        scale=table.parameter(path, "scale"),
        zero_point=table.parameter(path, "zero_point"),
    )
    return Operand(role=Role.OUTPUT, name=f"{path}.output", quantization=quantization)


def _steps(table: Table, path: str) -> int | None:
    """Return the number of steps of an activation's range, if scale and limits agree on a usual one."""
    scales, lows, highs = _limits(table, path)
    if len(scales) != 1 or len(lows) != 1 or len(highs) != 1 or not scales[0] > 0:
        return None
    width = max(highs[0], 0.0) - min(lows[0], 0.0)
    return next((steps for steps in _STEPS if abs(width / scales[0] - steps) < 1), None)


def _weight_range(table: Table, path: str) -> tuple[int, int] | None:
    """Return the range of a symmetric weight, if all channels agree on a usual one."""
    scales, lows, highs = _limits(table, path)
    if not scales or not len(scales) == len(lows) == len(highs) or not min(scales) > 0:
        return None
    channels = list(zip(scales, lows, highs, strict=True))
    return next((ends for ends in _WEIGHT_RANGES if all(_fits(*channel, *ends) for channel in channels)), None)


def _fits(scale: float, low: float, high: float, qmin: int, qmax: int) -> bool:
    """Return whether a weight's scale follows from its limits and a range, in the observer's way or the fused kernel's.

    Source: aten/src/ATen/native/quantized/cpu/QuantUtils.h, ChooseQuantizationParams with preserve_sparsity.
    """
    observed = 2 * max(-low, high) / (qmax - qmin)
    is_mixed = low < 0 < high
    fused = max(low / qmin, high / qmax) if is_mixed else (max(high, 0.0) - min(low, 0.0)) / (qmax - qmin)
    return any(abs(expected / scale - 1) < _TOLERANCE for expected in (observed, fused))


def _limits(table: Table, path: str) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Return scales of a fake-quantize module, and low and high of its observer."""
    observer = _under(path, _OUTPUT)
    return (
        table.all_numbers(path, "scale"),
        table.all_numbers(observer, "min_val"),
        table.all_numbers(observer, "max_val"),
    )


def _is_guess(table: Table, path: str) -> bool:
    """Return whether the range of a fake-quantize module is nowhere in the file."""
    layer = table.layers.get(path, {})
    if _ENABLED not in layer or "quant_max" in layer:
        return False
    return (_weight_range if path.endswith(_WEIGHT) else _steps)(table, path) is None


def _integer(table: Table, path: str, leaf: str, default: int) -> int:
    number = table.number(path, leaf)
    return default if number is None or not float(number).is_integer() else int(number)
