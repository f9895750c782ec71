"""What is known of the values of a graph while it is followed: where they were stored, and on which grid they lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qtool.readers.facts import Compute, Node, Operand, Quantization, Role

if TYPE_CHECKING:
    from qtool.readers.facts import Tensor
    from qtool.types import Op


@dataclass
class Grid:
    """How codes stand for numbers, as far as the graph was followed; becomes a `Quantization`.

    Attributes:
        is_dynamic: its scale is worked out while running.
        others: as of `Quantization`.
    """

    dtype: str
    qmin: int
    qmax: int
    scale: tuple[float, ...] | Tensor | None = None
    zero_point: tuple[float, ...] | Tensor | None = None
    axis: int | None = None
    group_size: int | None = None
    is_dynamic: bool = False

    def quantization(self) -> Quantization:
        """Return what is known of it."""
        return Quantization(
            dtype=self.dtype,
            qmin=self.qmin,
            qmax=self.qmax,
            scale=self.scale,
            zero_point=self.zero_point,
            axis=self.axis,
            group_size=self.group_size,
        )


@dataclass(kw_only=True)
class Traced:
    """One value.

    Attributes:
        name: in the graph.
        tensor: the stored tensor it is, or was computed from alone.
        grid: the grid it lies on; None if it is on none, or none is known.
        is_codes: it is the codes themselves.
        is_cast: it is codes as floats, of which the zero point and the scale are not yet taken off.
        is_fake: it was rounded to its grid while running, from floats.
        is_transposed: it is a stored matrix, turned.
        is_scale: it was chosen from data while running.
        factor: it was multiplied by this number, as the first step of quantizing.
        ends: the integers it was clamped to.
        makers: the nodes whose results it was computed from.
        is_result: it is the result of its one maker, and not computed further.
    """

    name: str
    tensor: Tensor | None = None
    grid: Grid | None = None
    is_codes: bool = False
    is_cast: bool = False
    is_fake: bool = False
    is_transposed: bool = False
    is_scale: bool = False
    factor: float | None = None
    ends: tuple[int, int] | None = None
    makers: tuple[Draft, ...] = ()
    is_result: bool = False


@dataclass(kw_only=True)
class Draft:
    """A node while the graph is followed; becomes a `Node`.

    Attributes:
        is_layer: it multiplies by a weight.
        is_stamped: the file says that it is an int8 node.
        says: how it computes, where its op tells; else its tensors do.
        others: as of `Node`.
    """

    name: str
    op: Op | None
    target: str
    inputs: list[Traced] = field(default_factory=list)
    weight: Traced | None = None
    bias: Traced | None = None
    output: tuple[str, Grid] | None = None
    activation: str | None = None
    groups: int | None = None
    is_layer: bool = False
    is_stamped: bool = False
    is_weight_in_out: bool = False
    packed_class: str | None = None
    says: Compute | None = None
    note: str = ""

    def node(self) -> Node:
        """Return what is known of it."""
        makers = (maker for value in self.inputs for maker in value.makers if maker is not self)
        return Node(
            name=self.name,
            op=self.op,
            target=self.target,
            compute=self.compute(),
            operands=tuple(self._operands()),
            activation=self.activation,
            groups=self.groups,
            is_weight_in_out=self.is_weight_in_out,
            packed_class=self.packed_class,
            note=self.note,
            reads=tuple(dict.fromkeys(maker.name for maker in makers)),
        )

    def compute(self) -> Compute:
        """Return how it computes."""
        if self.says is not None:
            return self.says
        grids = [value.grid for value in self.inputs]
        if not self.is_layer:
            is_static = bool(grids) and all(grids) and (self.output is not None or self.is_stamped)
            return Compute.STATIC if is_static else Compute.FLOAT
        weight = self.weight
        if weight is None or weight.grid is None:
            return Compute.FLOAT
        if weight.is_fake:
            return Compute.FAKE_QUANTIZED
        read = grids[0] if grids else None
        if read is None:
            return Compute.WEIGHT_ONLY
        return Compute.DYNAMIC if read.is_dynamic else Compute.STATIC

    def _operands(self) -> list[Operand]:
        found = [_operand(Role.INPUT, value) for value in self.inputs]
        found += [] if self.weight is None else [_operand(Role.WEIGHT, self.weight)]
        found += [] if self.bias is None else [_operand(Role.BIAS, self.bias)]
        if self.output is not None:
            name, grid = self.output
            found.append(Operand(role=Role.OUTPUT, name=name, quantization=grid.quantization()))
        return found


def _operand(role: Role, value: Traced) -> Operand:
    tensor = value.tensor
    return Operand(
        role=role,
        name=value.name if tensor is None else tensor.name,
        tensor=tensor,
        quantization=None if value.grid is None else value.grid.quantization(),
    )
