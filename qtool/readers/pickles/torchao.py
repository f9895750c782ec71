"""Layers whose weights are tensor subclasses of torchao: codes, scales and zero points in one object.

Source: torchao/quantization/quantize_/workflows (Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor ...), and
torchao/dtypes for the older AffineQuantizedTensor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role, Tensor
from qtool.readers.pickles.table import bias_operands, weight_operand
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.pickles.table import Table

PREFIX: Final = "torchao."
_CODES: Final = ("qdata", "int_data", "packed_weight", "packed_weights", "float8_data", "data")
_INSIDE: Final = ("", ".tensor_impl", ".original_weight_tensor", ".original_weight_tensor.tensor_impl")
"""Where the codes of a weight lie: older ones wrap a tensor in a tensor."""

_RANGES: Final = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1),
                  "float8_e4m3fn": (-448, 448), "float8_e5m2": (-57344, 57344)}  # fmt: skip
"""Smallest and largest code by dtype; of float8 the largest finite numbers."""

_NARROW: Final = re.compile(r"torch\.(?P<unsigned>u?)int(?P<bits>[1-8])")
_INPUT: Final = {False: Quantization(dtype="int8", qmin=-128, qmax=127, scale=None, zero_point=None),
                 True: Quantization(dtype="int8", qmin=-64, qmax=63, scale=None, zero_point=None)}  # fmt: skip


def torchao_layers(table: Table, path: str) -> Iterator[Node]:
    """Yield a layer for each weight at a path that is a tensor subclass of torchao."""
    for name, cls in _subclasses(table, path):
        codes, place = _codes(table, name)
        if codes is None:
            continue
        shape = table.content.wrappers[name].shape
        leaf = name.rpartition(".")[2]
        compute = _compute(table, name)
        operands: tuple[Operand, ...] = (weight_operand(codes, _quantization(table, place, codes, shape)),)
        if compute is Compute.DYNAMIC:
            is_reduced = table.layers.get(f"{name}.act_quant_kwargs", {}).get("reduce_range") is True
            operands = (Operand(role=Role.INPUT, name=f"{path}.input", quantization=_INPUT[is_reduced]), *operands)
        yield Node(
            name=path if leaf == "weight" else name,
            op=Op.LINEAR if len(shape) == 2 else None,
            target=cls,
            compute=compute,
            operands=(*operands, *bias_operands(table.tensor(path, leaf.replace("weight", "bias")))),
            note="" if codes.shape == shape else f"its codes of shape {codes.shape} are packed from {shape}",
        )


def has_torchao(table: Table) -> bool:
    """Return whether there are tensor subclasses of torchao."""
    return any(table.class_of(name).startswith(PREFIX) for name in table.content.wrappers)


def _subclasses(table: Table, path: str) -> Iterator[tuple[str, str]]:
    """Yield (name, class) of the tensor subclasses that lie directly under a path."""
    for leaf in table.layers[path]:
        name = f"{path}.{leaf}" if path else leaf
        cls = table.class_of(name)
        if name in table.content.wrappers and cls.startswith(PREFIX):
            yield name, cls


def _codes(table: Table, name: str) -> tuple[Tensor | None, str]:
    """Return the codes of a weight, and the path they lie under with their scales."""
    for inside in _INSIDE:
        for leaf in _CODES:
            tensor = table.tensor(name + inside, leaf)
            if tensor is not None:
                return tensor, name + inside
    return None, name


def _compute(table: Table, name: str) -> Compute:
    own = table.layers.get(name, {})
    if isinstance(own.get("act_quant_scale"), Tensor):
        return Compute.STATIC
    is_dynamic = (
        f"{name}.act_quant_kwargs" in table.content.objects
        or isinstance(own.get("activation_quantization"), str)
        or "LinearActivationQuantizedTensor" in table.class_of(name)
    )
    return Compute.DYNAMIC if is_dynamic else Compute.WEIGHT_ONLY


def _quantization(table: Table, path: str, codes: Tensor, shape: tuple[int, ...]) -> Quantization:
    scale, zero_point = table.tensor(path, "scale"), table.tensor(path, "zero_point")
    narrow = _NARROW.fullmatch(table.word(path, "target_dtype"))
    qmin, qmax = _RANGES.get(codes.dtype, (0, 0))
    if narrow:
        steps = 1 << int(narrow["bits"])
        qmin, qmax = (0, steps - 1) if narrow["unsigned"] else (-steps // 2, steps // 2 - 1)
    axis, group_size = _granularity(shape, None if scale is None else scale.shape)
    return Quantization(
        dtype=codes.dtype, qmin=qmin, qmax=qmax, scale=scale, zero_point=zero_point if zero_point is not None else (),
        axis=axis, group_size=group_size,
    )  # fmt: skip


def _granularity(shape: tuple[int, ...], scales: tuple[int, ...] | None) -> tuple[int | None, int | None]:
    """Return axis and group size of scales: one for all, one a row, or one for so many neighbours in a row.

    Example:
        >>> _granularity((64, 128), (64, 1)), _granularity((64, 128), (64, 4))
        ((0, None), (1, 32))
    """
    if scales is None or len(shape) != 2 or len(scales) > 2 or not scales or set(scales) == {1}:
        return None, None
    columns = scales[1] if len(scales) == 2 else 1
    if columns <= 1:
        return 0, None
    return (1, shape[1] // columns) if shape[1] % columns == 0 else (1, None)
