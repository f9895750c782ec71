"""How values of an ONNX program are quantized: what constants say, and what the operators before and behind say."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import BITS, Quantization
from qtool.readers.onnx_messages import DTYPES, NODE_PREFIX
from qtool.readers.onnx_ops import CAST, CLIP, DEQUANTIZE, MOVES, QUANTIZE
from qtool.readers.onnx_program import LEFT_OUT
from qtool.readers.onnx_tensors import MAX_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.readers.facts import Tensor
    from qtool.readers.onnx_program import Operation, Program
    from qtool.readers.onnx_tensors import Storage

_FLOAT_LIMITS: Final = {"float8_e4m3fn": 448, "float8_e5m2": 57344, "float8_e4m3fnuz": 240, "float8_e5m2fnuz": 57344,
                        "float4_e2m1fn": 6}  # fmt: skip
"""Largest finite number of each. Source: docs/technical/float8.md and float4.md of onnx."""

EDGE_WORD: Final = f"{NODE_PREFIX}edge"
"""Key of a quantize's metadata under which `qtool export` writes the name of the edge."""

_MAX_STEPS: Final = 6
"""Operators that are stepped over in search of a constant, or of the quantize behind a layer."""

_MAX_READERS: Final = 64
"""Of one value that are looked at in search of a quantize."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What is known of a value.

    Attributes:
        is_codes: it is codes, and no floats.
        quantization: of codes, how they are meant; of floats, which codes they were.
        tensor: the stored tensor that it is, or was before steps that keep its values.
        is_turned: rows and columns of that tensor are swapped in it.
        is_fake: it is a stored float tensor that is rounded to codes while running.
        is_dynamic: its scale is worked out while running.
        makers: names of the nodes whose result it is.
    """

    is_codes: bool = False
    quantization: Quantization | None = None
    tensor: Tensor | None = None
    is_turned: bool = False
    is_fake: bool = False
    is_dynamic: bool = False
    makers: tuple[str, ...] = ()


UNKNOWN: Final = Flow()


@dataclass(frozen=True)
class Behind:
    """What follows a layer.

    Attributes:
        quantization: of the layer's result; None if it stays float.
        activation: what stands between.
        absorbed: operators between, which belong to the layer.
        edge: what `qtool export` calls the result; empty if it is somebody else's.
    """

    quantization: Quantization | None = None
    activation: str | None = None
    absorbed: tuple[Operation, ...] = ()
    edge: str = ""


NOTHING_BEHIND: Final = Behind()


class Quantizations:
    """Reads scales, zero points and ranges of one program; each constant once."""

    def __init__(self, program: Program, tensors: Mapping[int, Tensor], storage: Storage) -> None:
        self._program = program
        self._tensors = tensors
        self._storage = storage
        self._numbers: dict[int, tuple[float, ...] | None] = {}
        self._known: dict[tuple[object, ...], Quantization] = {}

    def constant(self, value: int) -> int | None:
        """Return the number of the stored tensor that a value is; None for one that is worked out."""
        for _ in range(_MAX_STEPS):
            if value in self._tensors:
                return value
            producer = self._program.producers.get(value)
            if producer is None or producer.op not in (CAST, *MOVES):
                return None
            value = producer.input(0)
        return None

    def numbers(self, value: int) -> tuple[float, ...] | None:
        """Return the numbers of a small constant; None if it is neither."""
        stored = self.constant(value)
        if stored is None:
            return None
        if stored not in self._numbers:
            message = self._program.tensors[stored]
            self._numbers[stored] = self._storage.numbers(message, self._tensors[stored])
        return self._numbers[stored]

    def number(self, value: int) -> float | None:
        """Return a constant with one element."""
        numbers = self.numbers(value)
        return numbers[0] if numbers is not None and len(numbers) == 1 else None

    def parameters(self, value: int) -> tuple[float, ...] | Tensor | None:
        """Return scales or zero points: empty for what is left out, a tensor if they are many, None if worked out."""
        if value == LEFT_OUT:
            return ()
        stored = self.constant(value)
        if stored is None:
            return None
        tensor = self._tensors[stored]
        return tensor if tensor.num_elements > MAX_NUMBERS else self.numbers(value)

    def of(
        self, dtype: str, scale: int, zero_point: int, axis: int, limits: tuple[int, int] | None, group: int = 0
    ) -> Quantization:
        """Return what a scale and a zero point say.

        Args:
            dtype: of the codes.
            scale: number of its value, or `LEFT_OUT`.
            zero_point: likewise.
            axis: along which scales stand, if there are several.
            limits: smallest and largest code, if smaller than the dtype's.
            group: neighbours that share a scale, or 0.
        """
        key = (dtype, scale, zero_point, axis, limits, group)
        if key not in self._known:
            qmin, qmax = limits or code_limits(dtype)
            stored = self.constant(scale)
            is_one = stored is None or (self._tensors[stored].num_elements == 1 and not group)
            self._known[key] = Quantization(
                dtype=dtype,
                qmin=qmin,
                qmax=qmax,
                scale=self.parameters(scale) or None,
                zero_point=self.parameters(zero_point),
                axis=None if is_one else axis,
                group_size=group if group > 0 else None,
            )
        return self._known[key]

    def of_quantize(self, operation: Operation) -> Quantization:
        """Return what a QuantizeLinear makes, without the Clip behind it."""
        dtype = self.dtype_of(operation.input(2)) or DTYPES.get(operation.integer("output_dtype", 0), "uint8")
        scale, zero_point = operation.input(1), operation.input(2)
        group = operation.integer("block_size", 0)
        return self.of(dtype, scale, zero_point, operation.integer("axis", 1), None, group)

    def of_dequantize(self, operation: Operation, codes: Flow) -> Quantization:
        """Return what a DequantizeLinear makes of codes."""
        known = codes.quantization if codes.is_codes else None
        dtype = known.dtype if known else self.dtype_of(operation.input(2)) or "uint8"
        if known is None and codes.tensor is not None:
            dtype = codes.tensor.dtype
        axis = operation.integer("axis", 1)
        if codes.is_turned and codes.tensor is not None:
            axis = _turned(axis, len(codes.tensor.shape))
        limits = None if known is None or known.dtype != dtype else (known.qmin, known.qmax)
        group = operation.integer("block_size", 0)
        found = self.of(dtype, operation.input(1), operation.input(2), axis, limits, group)
        return dataclasses.replace(found, scale=None, zero_point=None) if codes.is_dynamic else found

    def dtype_of(self, value: int) -> str | None:
        """Return the dtype of a constant."""
        stored = self.constant(value)
        return None if stored is None else self._tensors[stored].dtype

    def clipped(self, operation: Operation, quantization: Quantization) -> Quantization:
        """Return what a Clip on codes leaves of their range."""
        low, high = self.bounds(operation)
        qmin, qmax = max(quantization.qmin, low), min(quantization.qmax, high)
        if not all(map(math.isfinite, (qmin, qmax))):
            return quantization
        return dataclasses.replace(quantization, qmin=int(qmin), qmax=int(qmax))

    def bounds(self, operation: Operation) -> tuple[float, float]:
        """Return where a Relu or Clip clamps: infinite where it does not, NaN where that is worked out."""
        if operation.op != CLIP:
            return 0.0, math.inf
        ends = []
        for index, name, none in ((1, "min", -math.inf), (2, "max", math.inf)):
            value = operation.attributes.get(name, none)
            end = float(value) if isinstance(value, int | float) else none
            if operation.input(index) != LEFT_OUT:
                number = self.number(operation.input(index))
                end = math.nan if number is None else number
            ends.append(end)
        return ends[0], ends[1]

    def behind(self, value: int) -> Behind:
        """Return what follows a layer with that result, up to the quantize if there is one."""
        absorbed: list[Operation] = []
        activation = None
        for _ in range(_MAX_STEPS):
            quantize = self._quantize_behind(value)
            if quantize is not None:
                edge = quantize.words.get(EDGE_WORD, "")
                return Behind(self._clipped_behind(quantize), activation, tuple(absorbed), edge)
            only = self.only_reader(value)
            if only is None or not only.outputs:
                break
            if activation is None and only.op in ("Relu", CLIP):
                activation = _activation(*self.bounds(only))
            elif only.op not in MOVES or only.input(0) != value:
                break
            absorbed.append(only)
            value = only.outputs[0]
        return NOTHING_BEHIND

    def only_reader(self, value: int) -> Operation | None:
        """Return the one operator that reads a value; None if the model returns it, or several or none read it."""
        readers = self._program.consumers.get(value, ())
        return readers[0] if len(readers) == 1 and value not in self._program.results else None

    def _quantize_behind(self, value: int) -> Operation | None:
        readers = islice(self._program.consumers.get(value, ()), _MAX_READERS)
        return next((each for each in readers if each.op == QUANTIZE and each.input(0) == value), None)

    def _clipped_behind(self, quantize: Operation) -> Quantization:
        """Return what a QuantizeLinear and the Clip behind it make."""
        found = self.of_quantize(quantize)
        clip = self.only_reader(quantize.outputs[0]) if quantize.outputs else None
        return self.clipped(clip, found) if clip is not None and clip.op == CLIP else found

    def dequantize_behind(self, value: int) -> Operation | None:
        """Return the DequantizeLinear that reads codes."""
        readers = islice(self._program.consumers.get(value, ()), _MAX_READERS)
        return next((each for each in readers if each.op == DEQUANTIZE and each.input(0) == value), None)


def code_limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and largest code of a dtype.

    Example:
        >>> code_limits("int4")
        (-8, 7)
    """
    if dtype in _FLOAT_LIMITS:
        return -_FLOAT_LIMITS[dtype], _FLOAT_LIMITS[dtype]
    bits = BITS.get(dtype, 0)
    if dtype.startswith("uint"):
        return 0, (1 << bits) - 1
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if bits and dtype.startswith("int") else (0, 0)


def is_integer(dtype: str) -> bool:
    """Return whether a dtype is one of integers."""
    return dtype.startswith(("int", "uint"))


def _turned(axis: int, rank: int) -> int:
    """Return the axis before the last two were swapped."""
    own = axis + rank if axis < 0 else axis
    return {rank - 1: rank - 2, rank - 2: rank - 1}.get(own, axis)


def _activation(low: float, high: float) -> str:
    words = {(0.0, math.inf): "relu", (0.0, 6.0): "relu6", (-1.0, 1.0): "hardtanh"}
    return words.get((low, high), f"clip({low:g}, {high:g})")
