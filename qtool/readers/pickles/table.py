"""The layers of a pickled model as a table: what each has directly, by the path of its module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.readers.facts import Operand, Quantization, Role, Tensor
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.readers.pickles.content import Content

    Numbers = Callable[[Tensor], tuple[float, ...] | None]

_CONVOLUTIONS = {3: Op.CONV1D, 4: Op.CONV2D, 5: Op.CONV3D}
_TRANSPOSED = {3: Op.CONV_TRANSPOSE1D, 4: Op.CONV_TRANSPOSE2D}


@dataclass(frozen=True)
class Table:
    """What a model consists of.

    Attributes:
        content: all of it by full name.
        layers: what lies directly under each path, by the last part of its name.
        numbers: reads a small tensor.
    """

    content: Content
    layers: dict[str, dict[str, object]]
    numbers: Numbers

    def class_of(self, path: str) -> str:
        """Return the class of a module, empty where it is not known: a state dict has none."""
        return self.content.classes.get(path, "")

    def tensor(self, path: str, leaf: str) -> Tensor | None:
        """Return a tensor of a layer."""
        found = self.layers.get(path, {}).get(leaf)
        return found if isinstance(found, Tensor) else None

    def number(self, path: str, leaf: str) -> float | None:
        """Return a number of a layer, whether it is one or a tensor with one element."""
        numbers = self.all_numbers(path, leaf)
        return numbers[0] if len(numbers) == 1 else None

    def all_numbers(self, path: str, leaf: str) -> tuple[float, ...]:
        """Return the numbers of a small tensor of a layer; none where there is none or it is large."""
        found = self.layers.get(path, {}).get(leaf)
        if isinstance(found, Tensor):
            return self.numbers(found) or ()
        return (found,) if isinstance(found, int | float) else ()

    def word(self, path: str, leaf: str) -> str:
        """Return a text, or the name of a dtype, of a layer; empty where there is none."""
        found = self.layers.get(path, {}).get(leaf)
        return "" if found is None or isinstance(found, Tensor | int | float) else str(found)

    def parameter(self, path: str, leaf: str) -> tuple[float, ...] | Tensor | None:
        """Return a scale or zero point: one number, or the tensor of many."""
        number = self.number(path, leaf)
        return self.tensor(path, leaf) if number is None else (number,)


def table_of(content: Content, numbers: Numbers) -> Table:
    """Return the table of what a pickle holds; what lies under a path comes after it."""
    layers: dict[str, dict[str, object]] = {}
    for values in (content.tensors, content.wrappers, content.plain):
        for name, value in values.items():
            path, _, leaf = name.rpartition(".")
            if path not in layers:
                for dot in re.finditer(r"\.", path):
                    layers.setdefault(path[: dot.start()], {})
            layers.setdefault(path, {})[leaf] = value
    return Table(content, layers, numbers)


def weight_operand(weight: Tensor, quantization: Quantization | None = None) -> Operand:
    """Return a weight as an operand, quantized as it says itself unless told otherwise."""
    return Operand(role=Role.WEIGHT, name=weight.name, tensor=weight, quantization=quantization or weight.quantization)


def bias_operands(bias: Tensor | None) -> tuple[Operand, ...]:
    """Return a bias as an operand, if there is one."""
    return () if bias is None else (Operand(role=Role.BIAS, name=bias.name, tensor=bias),)


def op_of_weight(weight: Tensor, bias: Tensor | None) -> Op | None:
    """Return the op that a weight with its bias can belong to, by their shapes alone.

    A transposed convolution is told by a bias that has as many elements as the weight's second size and not its first,
    or by channels along that axis.
    """
    rank = len(weight.shape)
    if rank == 2:
        return Op.LINEAR
    axis = None if weight.quantization is None else weight.quantization.axis
    is_transposed = bias is not None and bias.shape != weight.shape[:1] and bias.shape == weight.shape[1:2]
    return (_TRANSPOSED if is_transposed or axis == 1 else _CONVOLUTIONS).get(rank)
