"""Ops that only move values: their codes move along, on the same grid."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from qtool.numerics.coded import Coded, is_coded, values_of
from qtool.numerics.kept_as_codes import kept_as_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.numerics.grid import Grid

aten = torch.ops.aten

MOVES: frozenset[Any] = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.view_as.default,
        aten.reshape_as.default,
        aten._unsafe_view.default,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.movedim.int,
        aten.swapaxes.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.narrow.default,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.chunk.default,
        aten.expand.default,
        aten.repeat.default,
        aten.contiguous.default,
        aten.clone.default,
        aten.alias.default,
        aten.detach.default,
        aten.flip.default,
        aten.roll.default,
        aten.pad.default,
        aten.constant_pad_nd.default,
        aten.pixel_shuffle.default,
        aten.pixel_unshuffle.default,
        aten.channel_shuffle.default,
        aten.upsample_nearest1d.vec,
        aten.upsample_nearest2d.vec,
        aten.upsample_nearest3d.vec,
        aten._upsample_nearest_exact1d.vec,
        aten._upsample_nearest_exact2d.vec,
        aten._upsample_nearest_exact3d.vec,
        aten.cat.default,
        aten.stack.default,
    }
)
"""Ops each value of whose result is one of the values of their first argument, or the 0 of a padding."""


def moved(op: Any, source: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - an ATen op, its arguments and results
    """Return `op(source, *args, **kwargs)` with the codes moved along.

    Autograd keeps nothing for these ops. Codes of a view are a view of the codes and take no memory; whoever saves
    them keeps all codes that they are a view of, a quarter of what the values would keep.

    There are no codes where the result is on no one grid: parts on different grids, padding with another number than
    0, one scale for each channel. There are none either where no gradient is recorded.

    Args:
        op: one of `MOVES`, or `operator.getitem` for the list that a split gave.
        source: what is moved: Coded, Tensor, or a list of them.
        args: the other arguments of the op.
        kwargs: likewise.

    Returns:
        Coded, or a list of Coded where the op returns several tensors.

    Example:
        >>> grid = Grid(torch.tensor(0.5), torch.tensor(4, dtype=torch.int32), 0, 15)
        >>> x = Coded(torch.tensor([1.0, 2.0]), torch.tensor([6, 8], dtype=torch.uint8), grid)
        >>> moved(aten.constant_pad_nd.default, x, [1, 0]).codes
        tensor([4, 6, 8], dtype=torch.uint8)
    """
    if op is operator.getitem:
        return source[args[0]]
    if op not in MOVES:
        msg = f"{op} does more than move values"
        raise ValueError(msg)
    values = kept_as_codes(op, source, *args, **kwargs)
    parts = [source] if isinstance(source, (Coded, Tensor)) else list(source)
    grid = _one_grid(parts) if _pads_with_zero(op, args, kwargs) else None
    if grid is None:
        return _with_codes(values, None, None)
    codes = [_bytes(part) for part in parts if isinstance(part, Coded)]
    rest, named = tree_map(values_of, (args, kwargs), is_leaf=is_coded)
    # A padding puts 0 where the zero point belongs: what is moved then is the distance from it, modulo 256, and no
    # number has to be fetched from the device.
    zero_point = grid.zero_point.to(grid.code_dtype).view(torch.uint8) if op in _PAD_VALUE else None
    codes = codes if zero_point is None else [each - zero_point for each in codes]
    result = op(codes[0] if is_coded(source) else codes, *rest, **named)
    result = result if zero_point is None else result + zero_point
    return _with_codes(values, result, grid)


_PAD_VALUE = {aten.pad.default: 2, aten.constant_pad_nd.default: 1}
"""Ops that pad, and where the value is among their arguments behind the source."""


def _pads_with_zero(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:  # noqa: ANN401 - an ATen op
    """Return whether what the op pads with, if anything, is 0 or a value of its source."""
    position = _PAD_VALUE.get(op)
    if position is None:
        return True
    fill = args[position] if len(args) > position else kwargs.get("value")
    return fill is None or fill == 0


def _one_grid(parts: Sequence[Coded | Tensor]) -> Grid | None:
    """Return the grid that all parts have codes on; None if there is none or codes are of no use."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    coded = [part for part in parts if isinstance(part, Coded) and part.codes is not None]
    grids = [part.grid for part in coded if part.grid is not None and part.grid.axis is None]
    # Values of several dtypes are converted to one, and would no longer be what their codes give in it.
    if not parts or len(grids) < len(parts) or len({part.values.dtype for part in coded}) > 1:
        return None
    first, *others = grids
    return first if all(_is_same(first, each) for each in others) else None


def _is_same(a: Grid, b: Grid) -> bool:
    # To compare numbers waits for the device: elsewhere than on the CPU, the same tensors or nothing.
    return a[2:] == b[2:] and all(
        one is other or (one.device.type == "cpu" == other.device.type and torch.equal(one, other))
        for one, other in zip(a[:2], b[:2], strict=True)
    )


def _bytes(part: Coded) -> Tensor:
    """Return codes as bytes, which every op can move, with the strides of the values: a view of both or of none."""
    assert part.codes is not None
    codes = part.codes.view(torch.uint8)
    if codes.stride() == part.values.stride():
        return codes
    return torch.empty_like(part.values.detach(), dtype=torch.uint8).copy_(codes)


def _with_codes(values: Any, codes: Any, grid: Grid | None) -> Any:  # noqa: ANN401 - one tensor or several
    if isinstance(values, Tensor):
        return Coded(values, None if grid is None else codes.view(grid.code_dtype), grid)
    return [_with_codes(each, None if codes is None else codes[index], grid) for index, each in enumerate(values)]
