from __future__ import annotations

import operator
from types import MappingProxyType

import pytest
import torch

from qtool.numerics.coded import Coded
from qtool.numerics.grid import Grid
from qtool.numerics.kept_as_codes import kept_as_codes
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.moved import MOVES, moved
from qtool.passes.ops import PATTERNS
from qtool.types import Op
from tests.numerics.coded_samples import GRID, SIGNED, bytes_saved, random_coded, same_bits

aten = torch.ops.aten

ARGUMENTS = MappingProxyType(
    {
        aten.view.default: ([2, 2, 2, 36],),
        aten.reshape.default: ([2, -1],),
        aten._unsafe_view.default: ([2, 2, 2, 36],),
        aten.flatten.using_ints: (1,),
        aten.unflatten.int: (1, [2, 2]),
        aten.permute.default: ([0, 2, 3, 1],),
        aten.transpose.int: (1, 2),
        aten.movedim.int: (1, 3),
        aten.swapaxes.default: (1, 3),
        aten.squeeze.default: (),
        aten.squeeze.dim: (1,),
        aten.squeeze.dims: ([1],),
        aten.unsqueeze.default: (1,),
        aten.slice.Tensor: (1, 1, 3),
        aten.select.int: (1, 2),
        aten.narrow.default: (1, 0, 2),
        aten.split.Tensor: (3, 1),
        aten.split_with_sizes.default: ([1, 3], 1),
        aten.chunk.default: (2, 1),
        aten.expand.default: ([3, 2, 4, 6, 6],),
        aten.repeat.default: ([1, 2, 1, 1],),
        aten.contiguous.default: (),
        aten.clone.default: (),
        aten.alias.default: (),
        aten.flip.default: ([1, 2],),
        aten.roll.default: ([1], [2]),
        aten.pad.default: ([1, 1, 2, 0],),
        aten.constant_pad_nd.default: ([1, -1, 2, 0],),
        aten.pixel_shuffle.default: (2,),
        aten.pixel_unshuffle.default: (2,),
        aten.channel_shuffle.default: (2,),
        aten.upsample_nearest2d.vec: ([12, 9], None),
        aten._upsample_nearest_exact2d.vec: (None, [2.0, 1.5]),
    }
)
"""For an image of 2 x 4 x 6 x 6."""
OTHER_SOURCES = MappingProxyType(
    {
        aten.t.default: ((3, 5), ()),
        aten.upsample_nearest1d.vec: ((2, 3, 5), ([7], None)),
        aten._upsample_nearest_exact1d.vec: ((2, 3, 5), ([7], None)),
        aten.upsample_nearest3d.vec: ((1, 2, 3, 3, 3), ([6, 4, 5], None)),
        aten._upsample_nearest_exact3d.vec: ((1, 2, 3, 3, 3), ([6, 4, 5], None)),
    }
)
OF_LISTS = MappingProxyType({aten.cat.default: (1,), aten.stack.default: (1,)})
LIKE_OTHERS = (aten.view_as.default, aten.reshape_as.default)


def source_and_arguments(op, **how):
    if op in OTHER_SOURCES:
        shape, args = OTHER_SOURCES[op]
        return random_coded(*shape, **{**how, "memory_format": torch.contiguous_format}), args
    image = random_coded(2, 4, 6, 6, **how)
    if op in OF_LISTS:
        return [image, random_coded(2, 4, 6, 6, **{**how, "seed": 1})], OF_LISTS[op]
    if op in LIKE_OTHERS:
        return image, (random_coded(2, 4, 36),)
    return image, ARGUMENTS[op]


def values_of(source):
    return [part.values for part in source] if isinstance(source, list) else source.values


def each(result):
    return list(result) if isinstance(result, (list, tuple)) and not isinstance(result, Coded) else [result]


@pytest.mark.parametrize("op", sorted(MOVES - {aten.detach.default}, key=str), ids=str)
@pytest.mark.parametrize("grid", [GRID, SIGNED], ids=["uint8", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_values_are_those_of_the_op_and_codes_say_them(op, grid, dtype, memory_format):
    source, args = source_and_arguments(op, grid=grid, dtype=dtype, memory_format=memory_format)
    plain = [arg.values if isinstance(arg, Coded) else arg for arg in args]
    try:
        expected = op(values_of(source), *plain)
    except RuntimeError:
        assert memory_format is torch.channels_last
        assert "view" in str(op)
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            moved(op, source, *args)
        return
    found = each(moved(op, source, *args))
    for one, other in zip(found, each(expected), strict=True):
        assert same_bits(one.values, other)
        assert type(one.values.grad_fn) is type(other.grad_fn)
        assert one.codes.stride() == one.values.stride()
        assert same_bits(decode(one.codes, one.grid, dtype), one.values)
        assert one.grid is (source[0] if isinstance(source, list) else source).grid


def test_every_op_that_a_plan_calls_moving_is_known():
    moving = {op for op, pattern in PATTERNS.items() if pattern in (Op.LAYOUT, Op.CAT)}
    assert moving - {operator.getitem} == MOVES


@pytest.mark.parametrize("op", sorted(MOVES, key=str), ids=str)
def test_autograd_keeps_nothing(op):
    source, args = (random_coded(2, 3), ()) if op is aten.detach.default else source_and_arguments(op)
    assert bytes_saved(lambda: moved(op, source, *args)) == 0


def test_detached_values_have_codes():
    x = random_coded(2, 3)
    found = moved(aten.detach.default, x)
    assert not found.values.requires_grad
    assert torch.equal(found.codes, x.codes)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_padding_with_own_values(mode):
    x = random_coded(2, 4, 6, 6)
    found, expected = moved(aten.pad.default, x, [1, 1, 2, 0], mode), aten.pad(x.values, [1, 1, 2, 0], mode)
    assert same_bits(found.values, expected)
    assert same_bits(decode(found.codes, GRID), expected)
    grad = torch.randn(expected.shape)
    gradients = [torch.autograd.grad(y, x.values, grad)[0] for y in (found.values, expected)]
    assert same_bits(*gradients)


@pytest.mark.parametrize("op", [aten.pad.default, aten.constant_pad_nd.default])
def test_a_padding_with_another_number_has_no_codes(op):
    args = ([1, 1], "constant", 0.5) if op is aten.pad.default else ([1, 1], 0.5)
    found = moved(op, random_coded(2, 4), *args)
    assert found.codes is None
    assert found.grid is None
    named = moved(op, random_coded(2, 4), [1, 1], value=0.5)
    assert same_bits(named.values, found.values)
    assert named.codes is None


@pytest.mark.parametrize("op", OF_LISTS)
def test_parts_on_different_grids_have_no_codes(op):
    a = random_coded(2, 4)
    for b in (
        random_coded(2, 4, grid=SIGNED),
        random_coded(2, 4, grid=GRID._replace(scale=torch.tensor(0.04))),
        random_coded(2, 4, grid=GRID._replace(zero_point=torch.tensor(3, dtype=torch.int32))),
        random_coded(2, 4, grid=GRID._replace(qmax=127)),
        random_coded(2, 4, dtype=torch.bfloat16),
        Coded(torch.randn(2, 4)),
        torch.randn(2, 4),
    ):
        found = moved(op, [a, b], 0)
        values = b.values if isinstance(b, Coded) else b
        assert same_bits(found.values, op([a.values, values], 0))
        assert found.codes is None


def test_equal_grids_in_other_tensors_are_one_grid():
    again = Grid(GRID.scale.clone(), GRID.zero_point.clone(), GRID.qmin, GRID.qmax)
    found = moved(aten.cat.default, [random_coded(2, 4), random_coded(2, 4, grid=again)], 0)
    assert same_bits(decode(found.codes, found.grid), found.values)


def test_a_list_of_one_and_of_none():
    x = random_coded(2, 4)
    assert same_bits(decode(moved(aten.cat.default, [x]).codes, GRID), x.values)
    with pytest.raises(ValueError, match="non-empty list"):
        moved(aten.cat.default, [])


def test_one_scale_for_each_channel_has_no_codes():
    grid = Grid(torch.tensor([0.1, 0.2]), torch.tensor([3, 4], dtype=torch.int32), 0, 255, 0)
    assert moved(aten.transpose.int, random_coded(2, 4, grid=grid), 0, 1).codes is None


def test_without_codes_or_gradients_there_are_none():
    x = random_coded(2, 4)
    assert moved(aten.flatten.using_ints, Coded(x.values)).codes is None
    assert moved(aten.flatten.using_ints, x.values).codes is None
    with torch.no_grad():
        assert moved(aten.flatten.using_ints, x).codes is None


def test_getitem_takes_a_piece():
    pieces = moved(aten.split.Tensor, random_coded(2, 4), 2, 1)
    assert moved(operator.getitem, pieces, 1) is pieces[1]


def test_other_ops_are_refused():
    with pytest.raises(ValueError, match="does more than move"):
        moved(aten.upsample_bilinear2d.vec, random_coded(2, 4, 6, 6), [12, 12], False, None)


def test_codes_of_views_take_no_memory():
    x = random_coded(2, 4, 6, 6)
    for op in (aten.permute.default, aten.slice.Tensor, aten.expand.default, aten.split.Tensor, aten.view.default):
        for found in each(moved(op, x, *ARGUMENTS[op])):
            assert found.codes.untyped_storage().data_ptr() == x.codes.untyped_storage().data_ptr()


def test_codes_that_lie_otherwise_than_the_values_are_laid_out_like_them():
    x = random_coded(2, 4, 6, 6)
    y = x._replace(codes=x.codes.contiguous(memory_format=torch.channels_last))
    found = moved(aten.view.default, y, [2, -1])
    assert same_bits(decode(found.codes, GRID), found.values)


def test_pieces_of_one_tensor_are_kept_once():
    x = random_coded(8, 64)

    def run():
        return [kept_as_codes(aten.silu.default, piece) for piece in moved(aten.chunk.default, x, 2, 1)]

    assert bytes_saved(run, besides=(GRID.scale, GRID.zero_point)) == 8 * 64


def test_gradients_through_moves_and_consumers():
    a, b = random_coded(2, 4, 6, 6), random_coded(2, 4, 6, 6, seed=1)

    def forward(silu, cat, flip):
        return silu(flip(cat([a, b], 1), [2]))

    found = forward(
        lambda x: kept_as_codes(aten.silu.default, x),
        lambda *args: moved(aten.cat.default, *args),
        lambda *args: moved(aten.flip.default, *args),
    )
    expected = aten.silu(aten.flip(torch.cat([a.values, b.values], 1), [2]))
    inputs = [a.values, b.values]
    assert same_bits(found, expected)
    gradients = (torch.autograd.grad(y.square().sum(), inputs) for y in (found, expected))
    assert all(map(same_bits, *gradients))
