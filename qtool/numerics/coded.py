"""A tensor that lies on a grid, with the 8-bit codes that say all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.numerics.grid import Grid


class Coded(NamedTuple):
    """What flows between the ops of a training graph: values for the next op, codes for what backward keeps.

    The codes travel beside the values, from the op that made them to the ops that read them. No table is searched by
    address, so storage that is used again, views and changes in place cannot bring up the codes of another tensor.

    Attributes:
        values: any float dtype; what autograd knows.
        codes: uint8 or int8, same shape and memory format; `dequantize(codes)` in the dtype of `values` equals them
            bit for bit. None: the values are not on a grid.
        grid: what the codes stand for; None where they are None.
    """

    values: Tensor
    codes: Tensor | None = None
    grid: Grid | None = None


def is_coded(x: object) -> bool:
    """Return whether something carries codes, or could: a leaf of nested arguments."""
    return isinstance(x, Coded)


def values_of(x: Any) -> Any:  # noqa: ANN401 - what flows through a training graph, or any argument of an op
    """Return the values of what is `Coded`, and anything else as it is."""
    return x.values if isinstance(x, Coded) else x
