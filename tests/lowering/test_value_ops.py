"""Kernels from codes to codes: those in C give the codes of the ATen ops beside them, and those of the reference."""

import pytest
import torch

from qtool.lowering.casts import Dequantize, Quantize
from qtool.lowering.grid import Grid
from qtool.lowering.quint8 import viewed_as_quint8
from qtool.lowering.value_ops import Average, LookUp, Pair

A = Grid(scale=0.1, zero_point=3, qmin=0, qmax=127, dtype=torch.uint8)
B = Grid(scale=0.07, zero_point=120, qmin=0, qmax=255, dtype=torch.uint8)
OUT = Grid(scale=0.11, zero_point=40, qmin=0, qmax=127, dtype=torch.uint8)
SHAPES = [(2, 5, 7, 9), (1, 700, 40, 5), (0, 3, 4, 4), (3, 11)]


def codes(shape, seed, *, wide=False):
    made = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return made.contiguous(memory_format=torch.channels_last) if wide else made


def both(kernel, *inputs):
    """What the kernel gives in C, and without."""
    found = kernel(*inputs)
    kernel._functions = None
    return found, kernel(*inputs)


@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_are_those_of_the_reference_program(shape, multiplies):
    for wide in {False, len(shape) == 4}:
        a, b = codes(shape, 0, wide=wide), codes(shape, 1, wide=wide)
        found, in_aten = both(Pair(A, B, OUT, (45, 90), multiplies=multiplies), a, b)
        x, y = A.dequantize(a), B.dequantize(b)
        expected = OUT.quantize(x * y if multiplies else x + y).clamp(45, 90)
        assert torch.equal(found, expected)
        assert torch.equal(in_aten, expected)
        assert found.stride() == a.stride()


def test_pairs_that_lie_differently_or_broadcast_are_right_too():
    a, b = codes((2, 4, 6, 6), 0), codes((2, 4, 6, 6), 1, wide=True)
    pair = Pair(A, B, OUT, (0, 127), multiplies=True)
    assert torch.equal(pair(a, b), pair(a, b.contiguous()))
    small = codes((2, 4, 1, 1), 2)
    assert torch.equal(pair(a, small), pair(a, small.expand_as(a).contiguous()))


def test_pairs_read_and_give_quantized_tensors():
    a, b = codes((2, 4, 6, 6), 0, wide=True), codes((2, 4, 6, 6), 1, wide=True)
    pair = Pair(A, B, OUT, (0, 127), multiplies=False)
    expected = pair(a, b)
    pair.gives_quint8 = True
    found = pair(viewed_as_quint8(a, A.scale, A.zero_point), b)
    assert (found.q_scale(), found.q_zero_point(), found.stride()) == (OUT.scale, OUT.zero_point, a.stride())
    assert torch.equal(found.int_repr(), expected)


@pytest.mark.parametrize("shape", [(2, 5, 7, 7), (1, 1300, 3, 3), (2, 3, 11), (0, 3, 4, 4)])
def test_averages_are_within_a_step_and_the_same_in_aten(shape):
    for wide in {False, len(shape) == 4}:
        x = codes(shape, 0, wide=wide)
        found, in_aten = both(Average(B, OUT, (0, 127), keeps_dims=False), x)
        expected = OUT.quantize(B.dequantize(x).flatten(2).mean(2))
        assert torch.equal(found, in_aten)
        assert not found.numel() or (found.int() - expected.int()).abs().max() <= 1


def test_a_table_is_the_function():
    x = codes((3, 700, 9, 9), 0, wide=True)
    found, in_aten = both(LookUp(B, OUT, (0, 127), torch.sigmoid), x)
    assert torch.equal(found, OUT.quantize(B.dequantize(x).sigmoid()))
    assert torch.equal(in_aten, found)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 40, 41), (1, 4, 5, 5)])
@pytest.mark.parametrize("is_for_images", [False, True])
def test_casts_are_those_of_the_reference_program(shape, is_for_images):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 9
    x.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])[: x.numel()]
    found = Quantize(B, is_for_images=is_for_images)(x)
    assert torch.equal(found, B.quantize(x))
    assert torch.equal(Dequantize(B)(found), B.dequantize(found))
