"""Layers told by the names of stored tensors alone: a weight, and beside it the scales that say it is quantized.

The names are those of compressed-tensors, GPTQ, AWQ, bitsandbytes, torchao and of float8 checkpoints with blocks of
scales; how a layer computes is not in such a file, so a layer whose input has no scale counts as quantized in its
weight alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qtool.readers.facts import BITS, Compute, Node, Operand, Quantization, Role
from qtool.stamp import bounded_json
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtool.readers.facts import Tensor

    Layer = dict[str, Tensor]
    """The tensors of one layer, by the last part of their names."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The names that one tool gives to a weight and what quantizes it."""

    tool: str
    codes: str
    scale: str
    zero_point: str = ""
    input_scale: str = ""
    input_zero_point: str = ""
    is_packed: bool = False
    note: str = ""


_FORMS: Final = (
    _Form(
        tool="compressed-tensors",
        codes="weight",
        scale="weight_scale",
        zero_point="weight_zero_point",
        input_scale="input_scale",
        input_zero_point="input_zero_point",
    ),
    _Form(
        tool="compressed-tensors",
        codes="weight_packed",
        scale="weight_scale",
        is_packed=True,
        note="several codes of its weight are packed into each stored number",
    ),
    _Form(
        tool="torchao",
        codes="_weight_qdata",
        scale="_weight_scale",
        zero_point="_weight_zero_point",
        input_scale="_weight_act_quant_scale",
        input_zero_point="_weight_act_quant_zero_point",
    ),
    _Form(tool="float8 in blocks", codes="weight", scale="weight_scale_inv"),
    _Form(tool="bitsandbytes", codes="weight", scale="SCB", note="its scales are SCB / 127"),
    _Form(
        tool="bitsandbytes",
        codes="weight",
        scale="weight.absmax",
        is_packed=True,
        note="two codes of its weight are packed into each byte",
    ),
    _Form(tool="GPTQ or AWQ", codes="qweight", scale="scales", zero_point="qzeros", is_packed=True),
)

_CODES: Final = {"int8": (-128, 127), "uint8": (0, 255), "float8_e4m3fn": (-448, 448), "float8_e5m2": (-57344, 57344)}
"""Smallest and largest code by dtype; of float8 the largest finite numbers."""

_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_WEIGHT: Final = re.compile(r"(?P<start>\w*?)weight(?P<end>\w*)")
"""`weight`, `in_proj_weight`, `weight_ih_l0`."""
_CONVOLUTIONS: Final = {3: Op.CONV1D, 4: Op.CONV2D, 5: Op.CONV3D}
_TRANSPOSED: Final = {3: Op.CONV_TRANSPOSE1D, 4: Op.CONV_TRANSPOSE2D}
_WORD_BITS: Final = 32


def layers_of(tensors: Iterable[Tensor], metadata: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the layers with a weight, quantized or float, in the order of the file.

    Args:
        tensors: all that is stored.
        metadata: what the file says beside them; torchao says there what each weight is.

    Example:
        `head.weight` (int8) and `head.weight_scale` give one node `head`, whose weight has a scale for each row.
    """
    layers: dict[str, Layer] = {}
    for tensor in tensors:
        path, _, leaf = tensor.name.rpartition(".")
        layers.setdefault(path, {})[leaf] = tensor
        if path.endswith(".weight"):  # bitsandbytes hangs the parts of a weight below it
            layers.setdefault(path.removesuffix(".weight"), {})[f"weight.{leaf}"] = tensor
    return tuple(node for path, layer in layers.items() for node in _nodes(path, layer, metadata))


def _nodes(path: str, layer: Layer, metadata: Mapping[str, Any]) -> list[Node]:
    for form in _FORMS:
        codes, scale = layer.get(form.codes), layer.get(form.scale)
        if codes is not None and scale is not None and (form.is_packed or codes.dtype in _CODES):
            return [_quantized(path, layer, form, metadata)]
    found = [_WEIGHT.fullmatch(leaf) for leaf, tensor in layer.items() if tensor.dtype in _FLOATS]
    # A scale of a weight that was not recognised is no weight.
    return [_float(path, layer, name) for name in found if name and not name["end"].startswith("_scale")]


def _float(path: str, layer: Layer, name: re.Match[str]) -> Node:
    weight, bias = layer[name[0]], layer.get(f"{name['start']}bias{name['end']}")
    op = _op(weight, bias)
    return Node(
        name=path if name[0] == "weight" else weight.name,
        # Without a bias a matrix may be the table of an embedding.
        op=None if op is Op.LINEAR and bias is None else op,
        target="weight",
        compute=Compute.FLOAT,
        operands=tuple(_operands(weight, None, bias)),
    )


def _quantized(path: str, layer: Layer, form: _Form, metadata: Mapping[str, Any]) -> Node:
    codes, bias = layer[form.codes], layer.get("bias")
    operands = _operands(codes, _packed(layer, form) if form.is_packed else _plain(layer, form), bias)
    word, is_dynamic = _said_by_torchao(metadata.get(f"{path}.weight"))
    read = layer.get(form.input_scale)
    compute = Compute.STATIC if read else Compute.DYNAMIC if is_dynamic else Compute.WEIGHT_ONLY
    if compute is not Compute.WEIGHT_ONLY:
        low, high = _CODES.get(codes.dtype, (0, 0))
        zero_point = None if read is None else layer.get(form.input_zero_point, ())
        grid = Quantization(dtype=codes.dtype, qmin=low, qmax=high, scale=read, zero_point=zero_point)
        operands.insert(0, Operand(role=Role.INPUT, name=f"{path}.input", quantization=grid))
    return Node(
        name=path,
        op=Op.LINEAR if form.is_packed else _op(codes, bias),
        target=word or form.tool,
        compute=compute,
        operands=tuple(operands),
        is_weight_in_out=form.codes == "qweight",
        note=form.note,
    )


def _operands(weight: Tensor, grid: Quantization | None, bias: Tensor | None) -> list[Operand]:
    found = [Operand(role=Role.WEIGHT, name=weight.name, tensor=weight, quantization=grid)]
    return found if bias is None else [*found, Operand(role=Role.BIAS, name=bias.name, tensor=bias)]


def _said_by_torchao(text: object) -> tuple[str, bool]:
    """Return the class that torchao's metadata names for a weight, and whether inputs are quantized while it runs."""
    try:
        said = bounded_json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return "", False
    word, data = (said.get("_type"), said.get("_data")) if isinstance(said, dict) else (None, None)
    if not isinstance(word, str) or not isinstance(data, dict):
        return "", False
    return f"torchao {word}", isinstance(data.get("act_quant_kwargs"), dict)


def _plain(layer: Layer, form: _Form) -> Quantization:
    codes, scale = layer[form.codes], layer[form.scale]
    low, high = _CODES[codes.dtype]
    axis, group_size = _granularity(codes.shape, scale.shape)
    return Quantization(
        dtype=codes.dtype,
        qmin=low,
        qmax=high,
        scale=None if form.scale == "SCB" else scale,
        zero_point=layer.get(form.zero_point, ()),
        axis=axis,
        group_size=group_size,
    )


def _packed(layer: Layer, form: _Form) -> Quantization | None:
    """Return how packed codes are quantized; None where the shapes do not tell how many bits each has."""
    codes, scale, zeros = layer[form.codes], layer[form.scale], layer.get(form.zero_point)
    if zeros is not None and len(zeros.shape) == len(scale.shape) == len(codes.shape) == 2:
        return _columns(codes, scale, zeros)
    if form.codes == "weight_packed" and len(scale.shape) == len(codes.shape) == 2 and codes.shape[1]:
        return _rows(codes, scale)
    return None


def _columns(codes: Tensor, scale: Tensor, zeros: Tensor) -> Quantization | None:
    """Return the grid of GPTQ, packed along the inputs, or of AWQ, along the outputs: both with (in, out) weights."""
    groups, outputs = scale.shape
    bits = _WORD_BITS * zeros.shape[1] // outputs if outputs else 0
    inputs = codes.shape[0] if codes.shape[1] == zeros.shape[1] else codes.shape[0] * _WORD_BITS // max(bits, 1)
    return _words(bits, scale, None, axis=0, group_size=inputs // groups if groups else 0)


def _rows(codes: Tensor, scale: Tensor) -> Quantization | None:
    """Return the grid of compressed-tensors' packed weights: (out, in * bits / 32), 4 bits each, signed."""
    inputs, groups = codes.shape[1] * _WORD_BITS // 4, scale.shape[1]
    group_size = inputs // groups if groups > 1 else None
    return Quantization(
        dtype="int4", qmin=-8, qmax=7, scale=scale, zero_point=None, axis=1 if group_size else 0, group_size=group_size
    )


def _words(bits: int, scale: Tensor, zeros: Tensor | None, *, axis: int, group_size: int) -> Quantization | None:
    dtype = f"uint{bits}"
    if dtype not in BITS or bits > 8 or group_size < 1:
        return None
    return Quantization(
        dtype=dtype, qmin=0, qmax=(1 << bits) - 1, scale=scale, zero_point=zeros, axis=axis, group_size=group_size
    )


def _granularity(shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Return axis and group size of scales: one for all, one for each row, or one for so many neighbours in a row.

    Example:
        >>> _granularity((64, 128), (64, 1)), _granularity((64, 128), (64, 4)), _granularity((64, 128), ())
        ((0, None), (1, 32), (None, None))
    """
    sizes = [(axis, size) for axis, size in enumerate(scales) if size != 1]
    if not sizes or not shape:
        return None, None
    if len(sizes) == 1 and sizes[0] == (0, shape[0]):
        return 0, None
    columns = scales[1] if len(scales) == 2 else 0
    if len(shape) == 2 and columns and shape[1] % columns == 0:
        return 1, shape[1] // columns
    return sizes[-1][0], None


def _op(weight: Tensor, bias: Tensor | None) -> Op | None:
    """Return the op that a weight of that rank belongs to; a bias as long as its second size is of a transposed one."""
    rank = len(weight.shape)
    if rank == 2:
        return Op.LINEAR
    is_transposed = bias is not None and bias.shape != weight.shape[:1] and bias.shape == weight.shape[1:2]
    return (_TRANSPOSED if is_transposed else _CONVOLUTIONS).get(rank)
