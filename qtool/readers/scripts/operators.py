"""What the operators in TorchScript's code do to what is followed: they make nodes, or pass values on."""

from __future__ import annotations

import operator
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Tensor
from qtool.readers.marks import NodeMark, decode
from qtool.readers.scripts.values import NOTHING, Packed
from qtool.readers.traced import Draft, Grid, Traced
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qtool.readers.scripts.values import Module

_CODES: Final = {12: ("int8", -128, 127), 13: ("uint8", 0, 255), 14: ("int32", -(2**31), 2**31 - 1)}
"""Source: c10/core/ScalarType.h: QInt8, QUInt8, QInt32."""
_STATIC: Final = ("uint8", 0, 255)
_REDUCED: Final = ("uint8", 0, 127)
_LAYER: Final = re.compile(
    r"ops\.quantized\.(?P<op>conv[123]d|conv_transpose[12]d|linear)(?P<relu>_relu6?|_leaky_relu|_tanh)?"
    r"(?P<dynamic>_dynamic)?(?P<half>_fp16)?"
)
_NO_LAYERS: Final = re.compile(r"ops\.quantized\.\w*(?:prepack|unpack)\w*")
_PREPACK: Final = re.compile(r"ops\.quantized\.(?P<op>conv[123]d|conv_transpose[123]d|linear)_prepack(?:_fp16)?")
_OPS: Final = {
    "add": Op.ADD, "add_relu": Op.ADD, "add_scalar": Op.ADD, "mul": Op.MUL, "mul_relu": Op.MUL, "cat": Op.CAT,
    "cat_relu": Op.CAT, "hardswish": Op.HARDSWISH, "leaky_relu": Op.LEAKY_RELU, "sigmoid": Op.SIGMOID,
    "softmax": Op.SOFTMAX, "max_pool2d": Op.MAX_POOL,
}  # fmt: skip
_FLOAT_LAYERS: Final = {
    "conv1d": Op.CONV1D, "conv2d": Op.CONV2D, "conv3d": Op.CONV3D, "conv_transpose1d": Op.CONV_TRANSPOSE1D,
    "conv_transpose2d": Op.CONV_TRANSPOSE2D, "linear": Op.LINEAR,
}  # fmt: skip
_BY_RANK: Final = {
    (3, False): Op.CONV1D, (4, False): Op.CONV2D, (5, False): Op.CONV3D, (3, True): Op.CONV_TRANSPOSE1D,
    (4, True): Op.CONV_TRANSPOSE2D,
}  # fmt: skip
_ACTIVATIONS: Final = {
    "relu": "relu",
    "relu_": "relu",
    "relu6": "relu6",
    "hardtanh": "hardtanh",
    "hardtanh_": "hardtanh",
}
_MAX_MAKERS: Final = 16


class Operators:
    """Takes in one operator after the other, and keeps the nodes.

    Attributes:
        drafts: the nodes, in execution order.
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.names: Counter[str] = Counter()
        self.next_name = ""

    def __call__(self, path: str, arguments: list[object], module: Module | None) -> object:
        """Return what an operator gives.

        Args:
            path: as the code calls it, for example `torch.conv2d`.
            arguments: values.
            module: whose code calls it.
        """
        plain = _PLAIN.get(path)
        if plain is not None:
            return plain(path, arguments)
        if path == "ops.prim.RaiseException":
            return self._heard(arguments)
        if found := _PREPACK.fullmatch(path):
            return _prepacked(found["op"], arguments)
        if _NO_LAYERS.fullmatch(path) or path.startswith("ops.prim."):
            return NOTHING
        return self._computed(path, [each for each in _flat(arguments) if isinstance(each, Traced)], arguments, module)

    def _computed(self, path: str, read: list[Traced], arguments: list[object], module: Module | None) -> object:
        """Take in an op on tensors."""
        if found := _LAYER.fullmatch(path):
            return self._layer(path, found, read, arguments, module)
        if read and path in ("torch.clamp", "torch._make_per_tensor_quantized_tensor"):
            return _clamped(read[0], arguments) if path == "torch.clamp" else _made(read[0], arguments)
        if path.startswith("torch.quantize_per_"):
            return self._quantized(path, read, arguments)
        if path.startswith(("torch.fake_quantize_per_", "torch._fake_quantize_")):
            return self._fake_quantized(read, arguments)
        if path.startswith("ops.quantized."):
            return self._quantized_op(path, read, arguments, module)
        return self._float(path, read, arguments, module)

    def _heard(self, arguments: list[object]) -> object:
        """Keep the name of the node that a guard speaks of: the next layer is that node."""
        mark = decode(arguments[0]) if arguments and isinstance(arguments[0], str) else None
        self.next_name = mark.name if isinstance(mark, NodeMark) else self.next_name
        return NOTHING

    def _layer(
        self, path: str, found: re.Match[str], read: list[Traced], arguments: list[object], module: Module | None
    ) -> object:
        packed = next((each for each in arguments if isinstance(each, Packed)), Packed("", None))
        draft = self._draft(path, _FLOAT_LAYERS[found["op"]], module)
        draft.is_layer = True
        draft.packed_class = packed.cls or None
        draft.groups = packed.groups if draft.op is not Op.LINEAR else None
        draft.activation = found["relu"].removeprefix("_") if found["relu"] else None
        draft.weight = None if packed.weight is None else _stored(packed.weight)
        draft.bias = None if packed.bias is None else _stored(packed.bias)
        draft.inputs = read[:1] or [Traced(name="input")]
        numbers = [each for each in arguments[2:] if _is_number(each)]
        if found["half"]:
            draft.says = Compute.WEIGHT_ONLY
            draft.note = "its weight is rounded to float16 when it is packed"
        elif found["dynamic"]:
            is_reduced = not numbers or numbers[-1] is not False
            codes = _REDUCED if is_reduced else _STATIC
            draft.inputs = [replace(draft.inputs[0], grid=Grid(*codes, is_dynamic=True))]
            draft.says = Compute.DYNAMIC
        else:
            draft.says = Compute.STATIC
            return self._result(draft, _grid(_STATIC, *numbers[:2]))
        return self._result(draft, None)

    def _quantized_op(self, path: str, read: list[Traced], arguments: list[object], module: Module | None) -> object:
        name = path.removeprefix("ops.quantized.")
        if not read:
            return NOTHING
        draft = self._draft(path, _OPS.get(name), module)
        draft.inputs = read
        draft.activation = "relu" if name.endswith("_relu") else None
        draft.says = Compute.STATIC
        packed = [each for each in _flat(arguments) if isinstance(each, Packed) and each.weight is not None]
        if packed and packed[0].weight is not None:
            draft.weight, draft.says = _stored(packed[0].weight), Compute.DYNAMIC
        numbers = [each for each in arguments if _is_number(each) and not isinstance(each, bool)]
        grid = _grid(_STATIC, *numbers[-2:]) if len(numbers) > 1 and isinstance(numbers[-2], float | Tensor) else None
        return self._result(draft, grid or read[0].grid)

    def _quantized(self, path: str, read: list[Traced], arguments: list[object]) -> object:
        """Take in `quantize_per_tensor(x, scale, zero_point, dtype)` and `quantize_per_channel(..., axis, dtype)`."""
        codes = _CODES.get(arguments[-1] if arguments and isinstance(arguments[-1], int) else 0, _STATIC)
        grid = _grid(codes, *arguments[1:3])
        if path.endswith("per_channel") and len(arguments) > 3 and isinstance(arguments[3], int):
            grid.axis = arguments[3]
        value = _joined(read, keeps_grid=False)
        if value.is_result and value.makers[0].output is None:
            value.makers[0].output = (value.makers[0].name, grid)
        return replace(value, grid=grid)

    def _fake_quantized(self, read: list[Traced], arguments: list[object]) -> object:
        """Take in `fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)`, per channel with the axis too."""
        weight = next((each for each in arguments[:1] if isinstance(each, Tensor)), None)
        ends = [each for each in arguments[3:] if isinstance(each, int) and not isinstance(each, bool)]
        low, high = ends[-2:] if len(ends) > 1 else (0, 255)
        grid = _grid(("int8" if low < 0 else "uint8", low, high), *arguments[1:3])
        grid.axis = ends[0] if len(ends) > 2 else None
        if weight is not None:
            return replace(_stored(weight), grid=grid, is_fake=True)
        return replace(_joined(read, keeps_grid=False), grid=grid, is_fake=True)

    def _float(self, path: str, read: list[Traced], arguments: list[object], module: Module | None) -> object:
        name = path.rpartition(".")[2]
        value = _joined(read, keeps_grid=name != "dequantize")
        if value.is_result and name in _ACTIVATIONS and value.makers[0].activation is None:
            value.makers[0].activation = _ACTIVATIONS[name]
            return value
        faked = [each for each in read if each.is_fake and each.tensor is not None]
        stored = faked + [_stored(each) for each in arguments if isinstance(each, Tensor) and each.shape]
        op = _FLOAT_LAYERS.get(name)
        if not stored or not (read or op):
            return value if read else NOTHING
        if name == "_convolution":
            op = _BY_RANK.get((_rank(stored[0]), arguments[6:7] == [True]))
        draft = self._draft(path, op, module)
        draft.is_layer = op is not None
        draft.inputs = [each for each in read if each.tensor is None]
        draft.weight = stored[0]
        draft.bias = stored[1] if op is not None and len(stored) > 1 else None
        numbers = [each for each in arguments if isinstance(each, int) and not isinstance(each, bool)]
        draft.groups = (numbers[-1] if numbers else 1) if op is not None and op is not Op.LINEAR else None
        return self._result(draft, None)

    def _draft(self, path: str, op: Op | None, module: Module | None) -> Draft:
        name = self.next_name or (module.path if module is not None else "") or path.rpartition(".")[2]
        self.next_name = ""
        self.names[name] += 1
        unique = name if self.names[name] == 1 else f"{name} ({self.names[name]})"
        target = path.replace("ops.quantized.", "quantized::").replace("torch.", "aten::").replace(".", "::")
        draft = Draft(name=unique, op=op, target=target)
        self.drafts.append(draft)
        return draft

    def _result(self, draft: Draft, grid: Grid | None) -> Traced:
        if grid is not None and draft.says is Compute.STATIC:
            draft.output = (f"{draft.name}.output", grid)
        return Traced(name=f"{draft.name}.output", grid=grid, makers=(draft,), is_result=True)


def _joined(read: list[Traced], *, keeps_grid: bool) -> Traced:
    """Return the value that an op computes which is no node: of the first one's grid, made by what made all."""
    if not read:
        return Traced(name="")
    makers = tuple({id(maker): maker for value in read for maker in value.makers}.values())[:_MAX_MAKERS]
    is_result = len(read) == 1 and read[0].is_result
    return replace(read[0], grid=read[0].grid if keeps_grid else None, makers=makers, is_result=is_result)


def _stored(tensor: Tensor) -> Traced:
    found = tensor.quantization
    grid = None
    if found is not None:
        grid = Grid(found.dtype, found.qmin, found.qmax, found.scale, found.zero_point, found.axis, found.group_size)
    return Traced(name=tensor.name, tensor=tensor, grid=grid)


def _prepacked(op: str, arguments: list[object]) -> Packed:
    tensors = [each for each in arguments[:2] if isinstance(each, Tensor)]
    groups = arguments[-1] if op != "linear" and arguments and isinstance(arguments[-1], int) else None
    cls = "LinearPackedParamsBase" if op == "linear" else f"Conv{max(2, int(op[-2]))}dPackedParamsBase"
    return Packed(cls, tensors[0] if tensors else None, tensors[1] if len(tensors) > 1 else None, groups)


def _grid(codes: tuple[str, int, int], scale: object = None, zero_point: object = None) -> Grid:
    return Grid(*codes, scale=_numbers(scale), zero_point=_numbers(zero_point))


def _numbers(value: object) -> tuple[float, ...] | Tensor | None:
    if isinstance(value, Tensor):
        return value
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Tensor)


def _flat(values: Iterable[object]) -> Iterable[object]:
    for each in values:
        if isinstance(each, list):
            yield from each
        else:
            yield each


def _compared(path: str, arguments: list[object]) -> object:
    """Return what a comparison of two known values gives."""
    left, right = arguments if len(arguments) == 2 else (NOTHING, NOTHING)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _ORDERED[path](left, right)
    if isinstance(left, str) and isinstance(right, str) and path in ("torch.eq", "torch.ne"):
        return (left == right) == (path == "torch.eq")
    return NOTHING


def _is_none(path: str, arguments: list[object]) -> object:
    """Return what `__is__(x, None)` and `__isnot__(x, None)` give, where `x` is known."""
    if len(arguments) != 2 or NOTHING in arguments or None not in arguments:
        return NOTHING
    return (arguments[0] is None and arguments[1] is None) == (path == "torch.__is__")


def _first(_: str, arguments: list[object]) -> object:
    return arguments[0] if arguments else NOTHING


def _last(_: str, arguments: list[object]) -> object:
    return arguments[-1] if arguments else NOTHING


def _clamped(value: Traced, arguments: list[object]) -> Traced:
    """Take in a clamp: of codes it is their range, and that of the node that made them."""
    ends = [each for each in arguments[1:3] if isinstance(each, int) and not isinstance(each, bool)]
    if len(ends) < 2:
        return value
    low, high = ends
    if value.is_codes and value.is_result and value.makers[0].output is not None:
        name, grid = value.makers[0].output
        value.makers[0].output = (name, replace(grid, qmin=low, qmax=high))
    return replace(value, ends=(low, high))


def _made(value: Traced, arguments: list[object]) -> Traced:
    """Take in codes that become a quantized tensor: within what they were clamped to."""
    dtype, low, high = (*_STATIC[:1], *value.ends) if value.ends else _STATIC
    grid = _grid((dtype, low, high), *arguments[1:3])
    if value.is_result and value.makers[0].output is None:
        value.makers[0].output = (value.makers[0].name, grid)
    return replace(value, grid=grid, is_codes=False, ends=None)


def _codes(_: str, arguments: list[object]) -> object:
    """Take in `int_repr`."""
    value = arguments[0] if arguments else NOTHING
    return replace(value, is_codes=True) if isinstance(value, Traced) else NOTHING


def _rank(value: Traced) -> int:
    return 0 if value.tensor is None else len(value.tensor.shape)


_ORDERED: Final[dict[str, Callable[[float, float], bool]]] = {
    "torch.eq": operator.eq, "torch.ne": operator.ne, "torch.lt": operator.lt, "torch.gt": operator.gt,
    "torch.le": operator.le, "torch.ge": operator.ge,
}  # fmt: skip
_PLAIN: Final[dict[str, Callable[[str, list[object]], object]]] = {
    "float": _first, "int": _first, "bool": _first, "torch.to": _first, "unchecked_cast": _last, "annotate": _last,
    "torch.__is__": _is_none, "torch.__isnot__": _is_none, "torch.int_repr": _codes,
    **dict.fromkeys(_ORDERED, _compared),
}  # fmt: skip
"""Operators that are worked out, or passed through."""
