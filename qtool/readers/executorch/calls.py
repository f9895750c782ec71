"""The calls of an ExecuTorch plan as the steps of a graph: positions of arguments become the names of the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.executorch.storage import SCALAR_TYPES
from qtool.readers.programs import tables
from qtool.readers.programs.graph import Step, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qtool.readers.executorch.flatbuffer import Table
    from qtool.readers.programs.graph import Argument

    Values = Sequence[tuple[int, Table | None]]
    """Kind and record of each value of a plan."""

_VALUES, _INPUTS, _CHAINS, _OPERATORS = 2, 3, 5, 6
"""Fields of an ExecutionPlan."""
_INSTRUCTIONS: Final = 2
_ALLOCATION: Final = 6
"""Where a Tensor has its place in memory."""
_KERNEL_CALL: Final = 1
_INT, _BOOL, _DOUBLE, TENSOR, _TENSOR_LIST, _OPTIONAL_TENSORS = 2, 3, 4, 5, 10, 11
"""Kinds of values."""

_CODES: Final = ("quant_min", "quant_max", "dtype")
_ARGUMENTS: Final = {
    "aten.convolution": ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding",
                         "groups"),
    "aten.linear": ("input", "weight", "bias"),
    "aten.addmm": ("self", "mat1", "mat2"),
    "aten.add": ("self", "other"), "aten.mul": ("self", "other"), "aten.sub": ("self", "other"),
    "aten.mm": ("self", "mat2"), "aten.bmm": ("self", "mat2"),
    "aten.clamp": ("self", "min", "max"),
    "quantized_decomposed.quantize_per_tensor": ("input", "scale", "zero_point", *_CODES),
    "quantized_decomposed.dequantize_per_tensor": ("input", "scale", "zero_point", *_CODES),
    "quantized_decomposed.quantize_per_channel": ("input", "scales", "zero_points", "axis", *_CODES),
    "quantized_decomposed.dequantize_per_channel": ("input", "scales", "zero_points", "axis", *_CODES),
    "quantized_decomposed.quantize_per_token": ("input", "scales", "zero_points", *_CODES),
    "quantized_decomposed.dequantize_per_token": ("input", "scales", "zero_points", *_CODES),
}  # fmt: skip
"""Names of the first arguments; others are named by their place."""
_COPIES: Final = "_copy"
_NO_COPIES: Final = frozenset({"aten._to_copy"})
_EXPORTED_CODES: Final = {word: code for code, word in tables.SCALAR_TYPES.items()}


def steps_of(plan: Table, values: Values) -> Iterator[Step]:
    """Yield the calls of a plan in execution order; jumps, moves and calls of delegates are left out."""
    operators = [each.text(0).replace("::", ".") for each in plan.tables(_OPERATORS)]
    views = _Views(values, plan.numbers(_INPUTS, "i"))
    for chain in plan.tables(_CHAINS):
        for instruction in chain.tables(_INSTRUCTIONS):
            call = instruction.table(1) if instruction.number(0, "B") == _KERNEL_CALL else None
            index = 0 if call is None else call.number(0, "i")
            if call is not None and 0 <= index < len(operators):
                arguments = call.numbers(1, "i")
                plan.buffer.count(len(arguments))
                yield _step(operators[index], arguments, values, views)


def values_of(plan: Table) -> Values:
    """Return the kind and the record of each value of a plan."""
    return [(each.number(0, "B"), each.table(1)) for each in plan.tables(_VALUES)]


def value_name(index: int) -> str:
    """Return what a value of a plan, which has a number alone, is called."""
    return f"value {index}"


class _Views:
    """Finds what a value shows that no call makes: the program leaves out calls that only give memory another shape."""

    def __init__(self, values: Values, inputs: Sequence[int]) -> None:
        self.values = values
        self.made = set(inputs)
        self.newest: dict[tuple[int, int, int], int] = {}

    def shown(self, index: int) -> int:
        """Return the value that lies where this one lies, if that was made and this was not."""
        place = None if index in self.made else self._place(index)
        return index if place is None else self.newest.get(place, index)

    def make(self, index: int) -> None:
        """Take in that a call makes a value."""
        self.made.add(index)
        place = self._place(index)
        if place is not None:
            self.newest[place] = index

    def _place(self, index: int) -> tuple[int, int, int] | None:
        kind, value = self.values[index] if 0 <= index < len(self.values) else (0, None)
        memory = value.table(_ALLOCATION) if kind == TENSOR and value is not None else None
        return None if memory is None else (memory.number(0, "I"), memory.number(1, "I"), memory.number(2, "I"))


def _step(operator: str, arguments: Sequence[int], values: Values, views: _Views) -> Step:
    names = _ARGUMENTS.get(operator, ("self",))
    given: dict[str, Argument] = {}
    # The result stands twice at the end: as the argument `out`, and as what the call returns.
    for place, index in enumerate(each for each in arguments if each != arguments[-1]):
        given[names[place] if place < len(names) else str(place)] = _argument(index, values, views)
    code = given.get("dtype")
    if isinstance(code, int):
        given["dtype"] = _EXPORTED_CODES.get(SCALAR_TYPES.get(code, ""))
    is_copy = operator.endswith(_COPIES) and operator not in _NO_COPIES
    op = operator.removesuffix(_COPIES) if is_copy else operator
    for index in arguments[-1:]:
        views.make(index)
    outputs = tuple(value_name(index) for index in arguments[-1:])
    return Step(op=op, arguments=given, outputs=outputs, module=op.rpartition(".")[2], stamped=None)


def _argument(index: int, values: Values, views: _Views) -> Argument:
    kind, value = values[index] if 0 <= index < len(values) else (0, None)
    if value is None:
        return None
    if kind == TENSOR:
        return Value(value_name(views.shown(index)))
    if kind in (_TENSOR_LIST, _OPTIONAL_TENSORS):
        listed = value.numbers(0, "i")
        value.buffer.count(len(listed))
        return [Value(value_name(views.shown(each))) for each in listed]
    if kind == _BOOL:
        return bool(value.number(0, "b"))
    return value.number(0, "q") if kind == _INT else value.decimal(0) if kind == _DOUBLE else None
