"""Layers that are not quantized: everything with a weight that no other reader takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Node
from qtool.readers.pickles.classes import op_of_class
from qtool.readers.pickles.table import bias_operands, op_of_weight, weight_operand
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.facts import Tensor
    from qtool.readers.pickles.table import Table

_WEIGHT: Final = re.compile(r"(?P<start>\w*?)weight(?P<end>\w*)")
"""`weight`, `in_proj_weight`, `weight_ih_l0`."""


def float_layers(table: Table, path: str) -> Iterator[Node]:
    """Yield a layer for each float weight at a path."""
    for leaf in table.layers[path]:
        found, weight = _WEIGHT.fullmatch(leaf), table.tensor(path, leaf)
        if found is None or weight is None or weight.quantization is not None or not weight.dtype.startswith(_FLOATS):
            continue
        bias = table.tensor(path, f"{found['start']}bias{found['end']}")
        groups = table.number(path, "groups")
        yield Node(
            name=path if leaf == "weight" else weight.name,
            op=_op(table, path, weight, bias),
            target=_target(table, path, weight),
            compute=Compute.FLOAT,
            operands=(weight_operand(weight), *bias_operands(bias)),
            groups=int(groups) if groups is not None else None,
        )


_FLOATS: Final = ("float", "bfloat")


def _op(table: Table, path: str, weight: Tensor, bias: Tensor | None) -> Op | None:
    """Return the op by class, else by shape; a matrix without a class and bias may be an embedding."""
    cls = table.class_of(path)
    found = op_of_class(cls)
    if found is not None or (cls.startswith("torch.") and "weight" in table.layers[path]):
        return found
    found = op_of_weight(weight, bias)
    return None if found is Op.LINEAR and bias is None else found


def _target(table: Table, path: str, weight: Tensor) -> str:
    cls = table.class_of(path)
    if cls:
        return cls
    if table.tensor(path, "running_mean") is not None:
        return "batch_norm"
    return "norm" if len(weight.shape) == 1 else "weight"
