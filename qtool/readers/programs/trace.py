"""Follows a graph of torch.export from its stored tensors on, and finds its layers and what quantizes them.

Three forms of quantizing are known: the ops of `quantized_decomposed`, torchao's affine ones, and plain arithmetic,

    codes = to(clamp(round(x * (1 / scale)) + zero_point, qmin, qmax), uint8)
    x = (to(codes, float) - zero_point) * scale
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Tensor
from qtool.readers.programs.graph import Value
from qtool.readers.programs.tables import SCALAR_TYPES
from qtool.readers.traced import Draft, Grid, Traced
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtool.readers.facts import Node
    from qtool.readers.programs.graph import Argument, Step

_LIMITS: Final = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-32768, 32767), "int32": (-(2**31), 2**31 - 1)}
_LAYERS: Final = {
    "conv1d": Op.CONV1D, "conv2d": Op.CONV2D, "conv3d": Op.CONV3D, "conv_transpose1d": Op.CONV_TRANSPOSE1D,
    "conv_transpose2d": Op.CONV_TRANSPOSE2D, "linear": Op.LINEAR, "addmm": Op.LINEAR, "mm": Op.LINEAR,
    "_int_mm": Op.LINEAR, "matmul": Op.LINEAR, "bmm": Op.LINEAR, "conv_transpose3d": None,
}  # fmt: skip
_CONVOLUTIONS: Final = ("convolution", "_convolution")
_BY_RANK: Final = {
    (3, False): Op.CONV1D, (4, False): Op.CONV2D, (5, False): Op.CONV3D, (3, True): Op.CONV_TRANSPOSE1D,
    (4, True): Op.CONV_TRANSPOSE2D,
}  # fmt: skip
_MATRICES: Final = {"addmm": ("mat1", "mat2", "self"), "mm": ("self", "mat2", ""), "_int_mm": ("self", "mat2", ""),
                    "matmul": ("self", "other", ""), "bmm": ("self", "mat2", "")}  # fmt: skip
"""Names of input, weight and bias, of ops that multiply by a matrix from the right."""
_OPS: Final = {
    "add": Op.ADD, "mul": Op.MUL, "cat": Op.CAT, "max_pool1d": Op.MAX_POOL, "max_pool2d": Op.MAX_POOL,
    "max_pool2d_with_indices": Op.MAX_POOL, "avg_pool1d": Op.AVG_POOL, "avg_pool2d": Op.AVG_POOL,
    "adaptive_avg_pool2d": Op.MEAN, "mean": Op.MEAN, "sigmoid": Op.SIGMOID, "hardsigmoid": Op.HARDSIGMOID,
    "tanh": Op.TANH, "softmax": Op.SOFTMAX, "hardswish": Op.HARDSWISH, "leaky_relu": Op.LEAKY_RELU,
    "relu": Op.ACTIVATION, "hardtanh": Op.ACTIVATION, "relu6": Op.ACTIVATION,
}  # fmt: skip
_ACTIVATIONS: Final = frozenset({"relu", "relu_", "relu6", "hardtanh", "hardtanh_", "clamp", "clamp_min"})
_TURNING: Final = frozenset({"t", "transpose", "permute", "numpy_T"})
_MOVING: Final = _TURNING | {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "expand", "clone", "contiguous",
                             "alias", "detach", "unsqueeze", "squeeze", "lift_fresh_copy", "dropout"}  # fmt: skip
_CASTS: Final = frozenset({"to", "_to_copy"})
_DTYPES: Final = ("dtype", "input_dtype", "output_dtype")
"""Arguments that state the dtype of codes, the first that there is; what is dequantized states that of floats too."""
_MAX_MAKERS: Final = 16


def nodes_of(steps: Iterable[Step], stored: Mapping[str, Tensor]) -> tuple[Node, ...]:
    """Return the layers of a graph, quantized ops, and float ones with a weight, in execution order.

    Args:
        steps: the ops.
        stored: its stored tensors, by their names in the graph.
    """
    listed = list(steps)
    trace = _Trace(stored, Counter(name for step in listed for name in step.values()))
    for step in listed:
        trace.follow(step)
    return tuple(draft.node() for draft in trace.drafts if trace.is_kept(draft))


class _Trace:
    """What is known of each value so far, and the nodes found."""

    def __init__(self, stored: Mapping[str, Tensor], num_readers: Mapping[str, int]) -> None:
        self.values = {name: Traced(name=name, tensor=tensor) for name, tensor in stored.items()}
        self.num_readers = num_readers
        self.drafts: list[Draft] = []
        self.stamped: dict[str, Draft] = {}
        self.names: Counter[str] = Counter()

    def is_kept(self, draft: Draft) -> bool:
        """Whether it is quantized, has a weight or is stamped."""
        return draft.is_stamped or draft.weight is not None or draft.compute() is not Compute.FLOAT

    def follow(self, step: Step) -> None:
        """Take in one op."""
        namespace, _, name = step.op.partition(".")
        result = None
        if name.startswith("choose_qparams"):
            result = Traced(name="", is_scale=True)
        elif name.startswith("quantize_"):
            result = self._quantized(step)
        elif name.startswith("dequantize_"):
            result = self._dequantized(step)
        elif name.startswith(("fake_quantize_", "_fake_quantize_", "fused_moving_avg_obs")):
            result = self._fake_quantized(step)
        elif namespace == "aten":
            result = self._arithmetic(step, name) or self._layer(step, name) or self._moved(step, name)
        if result is None:
            result = self._other(step, name)
        is_result = result.is_result and len(step.outputs) == 1
        for output in step.outputs:
            self.values[output] = replace(result, name=output, is_result=is_result)

    # --- quantizing and dequantizing as one op

    def _quantized(self, step: Step) -> Traced:
        value, grid = self._given(step, "input"), self._grid(step)
        self._set_output(value, step, grid)
        return Traced(
            name="",
            tensor=value.tensor,
            grid=grid,
            is_codes=True,
            is_fake=value.tensor is not None,
            makers=value.makers,
        )

    def _dequantized(self, step: Step) -> Traced:
        value = self._given(step, "input")
        return Traced(
            name="",
            tensor=value.tensor,
            grid=self._grid(step),
            is_fake=value.is_fake,
            is_transposed=value.is_transposed,
            makers=value.makers,
        )

    def _fake_quantized(self, step: Step) -> Traced:
        value, grid = self._given(step, "self"), self._grid(step)
        self._set_output(value, step, grid)
        return Traced(name="", tensor=value.tensor, grid=grid, is_fake=True, makers=value.makers)

    def _set_output(self, value: Traced, step: Step, grid: Grid) -> None:
        if value.is_result and value.makers[0].output is None and step.outputs and not grid.is_dynamic:
            value.makers[0].output = (step.outputs[0], grid)

    def _grid(self, step: Step) -> Grid:
        given = step.arguments
        code = next((given[key] for key in _DTYPES if key in given), None)
        low, high = given.get("quant_min"), given.get("quant_max")
        dtype = SCALAR_TYPES.get(code, "other") if isinstance(code, int) else _smallest(low)
        ends = _LIMITS.get(dtype, (0, 0))
        scale, is_dynamic = self._numbers(given.get("scale", given.get("scales")))
        zero_point, _ = self._numbers(given.get("zero_point", given.get("zero_points")))
        axis, group_size = self._axis(step)
        return Grid(
            dtype=dtype,
            qmin=low if isinstance(low, int) else ends[0],
            qmax=high if isinstance(high, int) else ends[1],
            scale=scale,
            zero_point=zero_point,
            axis=axis,
            group_size=group_size,
            is_dynamic=is_dynamic,
        )

    def _axis(self, step: Step) -> tuple[int | None, int | None]:
        """Return the channel axis and the group size: stated, or by the shape of the block that shares a scale."""
        axis, block = step.arguments.get("axis"), step.arguments.get("block_size")
        if isinstance(axis, int):
            return axis, None
        tensor = self._given(step, "input").tensor
        if not isinstance(block, list) or tensor is None or len(block) != len(tensor.shape):
            return None, None
        split = [place for place, size in enumerate(block) if size != tensor.shape[place]]
        groups = [size for place, size in enumerate(block) if place in split and isinstance(size, int) and size > 1]
        return (split[-1], groups[0]) if groups else (split[0] if split else None, None)

    def _numbers(self, argument: Argument) -> tuple[tuple[float, ...] | Tensor | None, bool]:
        """Return numbers that stand in the graph or are stored, and whether they are worked out while running."""
        if isinstance(argument, int | float) and not isinstance(argument, bool):
            return (argument,), False
        value = self._value(argument)
        return value.tensor, value.is_scale

    # --- quantizing as plain arithmetic

    def _arithmetic(self, step: Step, name: str) -> Traced | None:
        if name in _CASTS:
            return self._cast(step)
        value = self._given(step, "self")
        if name in ("mul", "sub", "add") and value.grid is not None and (value.is_cast or value.factor is not None):
            return self._shifted(step, name, value)
        if name == "mul":
            return self._scaled(step, value)
        if name == "round" and value.factor is not None:
            return replace(value, grid=Grid(dtype="", qmin=0, qmax=0, scale=(_inverse(value.factor),)))
        if name == "clamp" and value.factor is not None and value.grid is not None:
            return self._clamped(step, value)
        return self._with_bias(step, value) if name in ("add", "add_") else None

    def _cast(self, step: Step) -> Traced | None:
        value, code = self._given(step, "self"), step.arguments.get("dtype")
        dtype = SCALAR_TYPES.get(code, "") if isinstance(code, int) else ""
        if dtype in _LIMITS and value.factor is not None and value.grid is not None:
            value.grid.dtype = dtype
            if value.grid.qmin == value.grid.qmax:
                value.grid.qmin, value.grid.qmax = _LIMITS[dtype]
            self._set_output(value, step, value.grid)
            return Traced(name="", grid=value.grid, is_codes=True, makers=value.makers)
        if "float" not in dtype:
            return value
        if value.is_codes:
            return replace(value, is_codes=False, is_cast=True)
        if value.tensor is not None and value.tensor.dtype in ("int8", "uint8") and value.grid is None:
            return replace(value, grid=_stored_grid(value.tensor), is_cast=True)
        return value

    def _shifted(self, step: Step, name: str, value: Traced) -> Traced:
        """Take in `codes - zero_point`, `(codes - zero_point) * scale` and `round(...) + zero_point`."""
        assert value.grid is not None, "the caller looked"
        given = step.arguments.get("other")
        numbers, _ = self._numbers(given)
        if name in ("sub", "add"):
            value.grid.zero_point = numbers
            return value
        value.grid.scale = numbers
        if isinstance(numbers, Tensor) and numbers.num_elements > 1:
            value.grid.axis = self._channel_axis(given, value.tensor)
        return replace(value, is_cast=False, factor=None)

    def _channel_axis(self, argument: Argument, weight: Tensor | None) -> int | None:
        """Return the axis of a weight along which scales of a shape like (-1, 1, 1, 1) lie."""
        numbers = self._value(argument).tensor
        if weight is None or numbers is None:
            return None
        fitting = [place for place, size in enumerate(weight.shape) if size == numbers.num_elements]
        return fitting[0] if fitting else None

    def _scaled(self, step: Step, value: Traced) -> Traced | None:
        other = step.arguments.get("other")
        if isinstance(other, float):
            return Traced(name="", factor=other, makers=value.makers, is_result=value.is_result)
        given = self._value(other)
        if given.is_scale and value.is_result:
            return value  # of an input quantized while running: its scale comes behind the product of codes
        scale = given.tensor
        draft = value.makers[0] if len(value.makers) == 1 else None
        grid = draft.weight.grid if draft is not None and draft.is_layer and draft.weight is not None else None
        if scale is not None and grid is not None and grid.scale is None:
            grid.scale = scale  # of int8 weights that are multiplied as they are, the scale comes behind
            grid.axis = 1 if draft is not None and draft.is_weight_in_out else 0
            return value
        return None

    def _clamped(self, step: Step, value: Traced) -> Traced:
        low, high = step.arguments.get("min"), step.arguments.get("max")
        if value.grid is not None and isinstance(low, int | float) and isinstance(high, int | float):
            value.grid.qmin, value.grid.qmax = int(low), int(high)
        return value

    def _with_bias(self, step: Step, value: Traced) -> Traced | None:
        """Take in a stored bias that is added behind a matrix product."""
        bias = self._given(step, "other")
        if bias.tensor is None or not value.is_result or not value.makers[0].is_layer or value.makers[0].bias:
            return None
        value.makers[0].bias = bias
        return value

    # --- layers and other ops

    def _layer(self, step: Step, name: str) -> Traced | None:
        if name not in _LAYERS and name not in _CONVOLUTIONS:
            return None
        x, w, b = _MATRICES.get(name, ("input", "weight", "bias"))
        weight, bias = self._given(step, w), self._given(step, b)
        tensor = weight.tensor
        if tensor is None:
            return None
        if weight.grid is None and tensor.dtype in ("int8", "uint8"):
            weight = replace(weight, grid=_stored_grid(tensor))
        draft = self._draft(step, _op(name, step, tensor))
        if draft.is_layer:
            return self._continued(draft)
        groups = step.arguments.get("groups", 1)
        draft.is_layer = True
        draft.inputs = [self._given(step, x)]
        draft.weight = weight
        draft.bias = None if bias.tensor is None else bias
        draft.groups = groups if isinstance(groups, int) and name not in _MATRICES and name != "linear" else None
        draft.is_weight_in_out = name in _MATRICES and not weight.is_transposed
        return self._continued(draft)

    def _moved(self, step: Step, name: str) -> Traced | None:
        """Take in an op that moves values, and is no node of its own."""
        value = self._given(step, "self")
        if name not in _MOVING or (step.stamped is not None and value.tensor is None):
            return None
        return replace(value, is_transposed=value.is_transposed ^ (name in _TURNING))

    def _other(self, step: Step, name: str) -> Traced:
        read = [self.values[each] for each in step.values() if each in self.values]
        computed = [value for value in read if value.tensor is None]
        first = computed[0] if computed else None
        if first is not None and first.is_result and name in _ACTIVATIONS and self._goes_on(step, first):
            first.makers[0].activation = name.rstrip("_")
            return self._continued(first.makers[0])
        stored = [v for v in read if v.tensor is not None and v.grid is None and "float" in v.tensor.dtype]
        is_quantized = bool(computed) and all(value.grid is not None for value in computed)
        if not (step.stamped or is_quantized or (stored and computed)):
            makers = dict.fromkeys(id(m) for value in read for m in value.makers)
            by_id = {id(m): m for value in read for m in value.makers}
            return Traced(name="", makers=tuple(by_id[each] for each in list(makers)[:_MAX_MAKERS]))
        draft = self._draft(step, _OPS.get(name.rstrip("_")))
        draft.inputs += [value for value in computed if draft not in value.makers]
        draft.weight = draft.weight or (stored[0] if stored else None)
        return self._continued(draft)

    def _goes_on(self, step: Step, value: Traced) -> bool:
        """Whether an activation belongs to the node before it: by its stamp, or because nobody else reads that."""
        draft = value.makers[0]
        if step.stamped is not None or draft.name in self.stamped:
            return step.stamped == draft.name
        return self.num_readers.get(value.name, 0) == 1 and draft.output is None

    def _draft(self, step: Step, op: Op | None) -> Draft:
        if step.stamped is not None and step.stamped in self.stamped:
            return self.stamped[step.stamped]
        draft = Draft(name=self._unused(step), op=op, target=step.op, is_stamped=step.stamped is not None)
        if step.stamped is not None:
            self.stamped[step.stamped] = draft
        self.drafts.append(draft)
        return draft

    def _unused(self, step: Step) -> str:
        name = step.stamped or step.module or (step.outputs[0] if step.outputs else step.op)
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"

    def _continued(self, draft: Draft) -> Traced:
        return Traced(name="", makers=(draft,), is_result=True)

    # --- values

    def _given(self, step: Step, name: str) -> Traced:
        return self._value(step.arguments.get(name))

    def _value(self, argument: Argument) -> Traced:
        found = self.values.get(argument.name) if isinstance(argument, Value) else None
        if found is not None:
            return found
        return Traced(name=argument.name if isinstance(argument, Value) else "")


def _stored_grid(tensor: Tensor) -> Grid:
    """Return the grid of stored codes that nothing more is known of yet."""
    low, high = _LIMITS[tensor.dtype]
    return Grid(dtype=tensor.dtype, qmin=low, qmax=high)


def _op(name: str, step: Step, weight: Tensor) -> Op | None:
    if name in _CONVOLUTIONS:
        return _BY_RANK.get((len(weight.shape), step.arguments.get("transposed") is True))
    return _LAYERS[name]


def _smallest(low: Argument) -> str:
    """Return the dtype of codes that begin at a number, where an op does not state it."""
    return "int8" if isinstance(low, int) and low < 0 else "uint8"


def _inverse(factor: float) -> float:
    return 1 / factor if factor else math.inf
