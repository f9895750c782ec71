"""Layers that torch.ao quantized: static, dynamic and float16 ones, embeddings, recurrent cells, and those in training.

A module tree says the class of each layer. A state dict does not: there a layer is told by the names and dtypes of what
it holds, and what they leave open stays open (groups, a fused activation).
Source: torch/ao/nn/quantized/modules and torch/ao/nn/quantized/dynamic/modules, `_save_to_state_dict`;
torch/ao/quantization/fake_quantize.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role
from qtool.readers.pickles.classes import activation_of_class, op_of_class
from qtool.readers.pickles.table import bias_operands, op_of_weight, weight_operand
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.pickles.table import Table

_PACKED_LINEAR: Final = "quantized.LinearPackedParamsBase"
_PACKED_EMBEDDING: Final = "quantized.EmbeddingPackedParamsBase"
_PACKED: Final = "._packed_params"
_STATIC: Final = Quantization(dtype="uint8", qmin=0, qmax=255, scale=None, zero_point=None)
_DYNAMIC: Final = Quantization(dtype="uint8", qmin=0, qmax=127, scale=None, zero_point=None)
"""What fbgemm, x86 and onednn quantize the input of a dynamic layer to: its modules ask for a reduced range, which
qnnpack ignores, whose kernels do not saturate. Measured: see test_torch_ao.py."""

_DYNAMIC_FULL: Final = Quantization(dtype="uint8", qmin=0, qmax=255, scale=None, zero_point=None)
_FLOAT16: Final = "its weight is rounded to float16 when it is packed, and stored as float32"
_GUESSED: Final = "taken for dynamic: its output scale is 1 and its zero point 0, which torch.ao gives dynamic layers"
_GRAPH_SCALE: Final = re.compile(r"(?P<start>.*)_scale_(?P<number>\d+)")
_GRAPH_OBSERVER: Final = re.compile(r"(?:.*\.)?activation_post_process_\d+")


def quantized_layers(table: Table, path: str) -> Iterator[Node]:
    """Yield the quantized layer at a path, and more than one of a graph's own scales; none if there is none."""
    layer = table.layers[path]
    if table.class_of(path) == _PACKED_LINEAR or (path.endswith(_PACKED * 2) and "0" in layer):
        yield from _linear(table, path)
    elif table.class_of(path.removesuffix(".1")) == _PACKED_EMBEDDING or "_packed_weight" in layer:
        yield from _embedding(table, path)
    elif f"{path}{_PACKED * 2}" in table.layers or not layer.keys() >= {"scale", "zero_point"}:
        pass
    elif "fake_quant_enabled" not in layer:
        yield _static(table, path)
    yield from _graph_scales(table, path)


def _linear(table: Table, path: str) -> Iterator[Node]:
    """Yield a linear layer, or one of the two in a recurrent cell, from its weight `0` and bias `1`."""
    weight, bias = table.tensor(path, "0"), table.tensor(path, "1")
    if weight is None:
        return
    owner = path.removesuffix(_PACKED * 2)
    cls = table.class_of(owner)
    compute, activation_range, note = Compute.STATIC, _STATIC, ""
    is_dynamic = owner == path or ".dynamic." in cls
    if not is_dynamic and not cls and (table.number(owner, "scale"), table.number(owner, "zero_point")) == (1, 0):
        is_dynamic, note = True, _GUESSED
    operands: tuple[Operand, ...] = (weight_operand(weight), *bias_operands(bias))
    if weight.quantization is None:
        compute, note = Compute.WEIGHT_ONLY, _FLOAT16
    elif is_dynamic:
        compute = Compute.DYNAMIC
        is_reduced = table.number(path.rpartition(".")[0], "reduce_range") != 0
        activation_range = _DYNAMIC if is_reduced else _DYNAMIC_FULL
        operands = (Operand(role=Role.INPUT, name=f"{owner}.input", quantization=activation_range), *operands)
    else:
        operands = (*operands, _output(table, owner))
    yield Node(
        name=owner,
        op=Op.LINEAR,
        target=cls or ("quantized::linear" if compute is Compute.STATIC else "quantized::linear_dynamic"),
        compute=compute,
        operands=operands,
        activation=activation_of_class(cls),
        packed_class="LinearPackedParamsBase",
        note=note,
    )


def _embedding(table: Table, path: str) -> Iterator[Node]:
    weight = table.tensor(path, "_packed_weight") or table.tensor(path, "0")
    if weight is None:
        return
    owner = path.removesuffix("._packed_weight.1").removesuffix(_PACKED)
    yield Node(
        name=owner,
        op=None,
        target=table.class_of(owner) or "quantized::embedding",
        compute=Compute.WEIGHT_ONLY,
        operands=(weight_operand(weight),),
        packed_class="EmbeddingPackedParamsBase",
    )


def _static(table: Table, path: str) -> Node:
    """Return a layer with an output scale: a convolution by its weight, or any other op that is quantized."""
    cls = table.class_of(path)
    weight, bias = table.tensor(path, "weight"), table.tensor(path, "bias")
    scale = table.tensor(path, "scale")
    groups = table.number(path, "groups")
    operands = () if weight is None else (weight_operand(weight), *bias_operands(bias))
    op = op_of_class(cls)
    target = cls or "quantized"
    is_dynamic = ".dynamic." in cls
    if weight is not None and not cls:
        op = op_of_weight(weight, bias)
        target = f"quantized::{op.value}" if op is not None else "quantized"
    elif not cls and scale is not None and scale.shape == (1,):
        target = "quantize"
    read = Operand(role=Role.INPUT, name=f"{path}.input", quantization=_DYNAMIC)
    return Node(
        name=path,
        op=op,
        target=target,
        compute=Compute.DYNAMIC if is_dynamic else Compute.STATIC,
        operands=(read, *operands) if is_dynamic else (*operands, _output(table, path)),
        activation=activation_of_class(cls),
        groups=int(groups) if groups is not None else None,
        packed_class=_conv_class(op),
    )


def _conv_class(op: Op | None) -> str | None:
    """Return the class that packs the weight of a convolution."""
    dims = None if op is None else re.fullmatch(r"conv(?:_transpose)?([123])d", op.value)
    # A convolution over one axis is packed as one over two.
    return None if dims is None else f"Conv{max(2, int(dims[1]))}dPackedParamsBase"


def _output(table: Table, path: str) -> Operand:
    """Return the output of a layer with its scale and zero point; torch.ao clips it to no range but the dtype's."""
    dtype = "int8" if table.word(path, "dtype") == "torch.qint8" else "uint8"
    quantization = Quantization(
        dtype=dtype,
        qmin=-128 if dtype == "int8" else 0,
        qmax=127 if dtype == "int8" else 255,
        scale=table.parameter(path, "scale"),
        zero_point=table.parameter(path, "zero_point"),
    )
    return Operand(role=Role.OUTPUT, name=f"{path}.output", quantization=quantization)


def _graph_scales(table: Table, path: str) -> Iterator[Node]:
    """Yield the quantize steps of a graph module, whose scales are buffers `NAME_scale_N` of the graph itself."""
    layer = table.layers[path]
    for leaf in layer:
        found = _GRAPH_SCALE.fullmatch(leaf)
        zero_point = f"{found['start']}_zero_point_{found['number']}" if found else ""
        if found is None or zero_point not in layer:
            continue
        name = f"{path}.{leaf}" if path else leaf
        quantization = Quantization(
            dtype="uint8",
            qmin=0,
            qmax=255,
            scale=table.parameter(path, leaf),
            zero_point=table.parameter(path, zero_point),
        )
        yield Node(
            name=name,
            op=None,
            target="quantize",
            compute=Compute.STATIC,
            operands=(Operand(role=Role.OUTPUT, name=f"{name}.output", quantization=quantization),),
        )


def is_of_graph(table: Table) -> bool:
    """Return whether the names are those that torch.ao's FX graph mode gives."""
    names = {name for root in ("", *table.content.roots) for name in table.layers.get(root, {})}
    return any(_GRAPH_SCALE.fullmatch(name) for name in names) or any(
        _GRAPH_OBSERVER.fullmatch(path) for path in table.layers
    )
