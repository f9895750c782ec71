import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.numerics.kernels.bits import index_dtype, pack_bits, unpack_bits
from qtool.numerics.mask import Mask, is_sparse
from tests.numerics.strategies import SIZES


@given(st.lists(st.booleans(), max_size=70))
def test_packing_loses_nothing(bits):
    passes = torch.tensor(bits, dtype=torch.bool)
    packed = pack_bits(passes)
    assert packed.dtype == torch.uint8
    assert packed.numel() == math.ceil(len(bits) / 8)
    assert torch.equal(unpack_bits(packed, len(bits)), passes)
    for index, bit in enumerate(bits):
        assert bool(packed[index // 8] >> (index % 8) & 1) == bit


@pytest.mark.parametrize("size", SIZES)
def test_all_true_and_all_false(size):
    for passes in (torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)):
        assert torch.equal(unpack_bits(pack_bits(passes), size), passes)
        assert torch.equal(Mask.from_bool(passes).to_bool(), passes)
    assert Mask.from_bool(torch.ones(size, dtype=torch.bool)).tensors() == ()


@pytest.mark.parametrize(("num_blocked", "dtype"), [(0, None), (31, torch.int32), (32, torch.uint8)])
def test_the_smallest_kind_is_stored(num_blocked, dtype):
    passes = torch.ones(1000, dtype=torch.bool)
    passes[torch.randperm(1000)[:num_blocked]] = False
    mask = Mask.from_bool(passes)
    assert (mask.stored is None) if dtype is None else (mask.stored.dtype == dtype)
    assert mask.bits_per_element <= 1.0
    assert torch.equal(mask.to_bool(), passes)
    assert torch.equal(Mask.of(mask.tensors(), passes).to_bool(), passes)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradients_of_any_layout_are_selected_not_multiplied(share, dtype):
    passes = (torch.rand(2, 6, 9, 7) >= share).to(memory_format=torch.channels_last)
    mask = Mask.from_bool(passes)
    grad = torch.randn(2, 6, 9, 7, dtype=dtype)
    grad[~passes] = math.inf
    before = grad.clone()
    expected = grad.where(passes, 0.0)
    for laid_out in (
        grad,
        grad.to(memory_format=torch.channels_last),
        grad.permute(3, 2, 1, 0).clone().permute(3, 2, 1, 0),
    ):
        assert torch.equal(mask.apply(laid_out), expected)
    assert torch.equal(mask.apply(grad[..., :1].expand(2, 6, 9, 7)), grad[..., :1].where(passes, 0.0))
    assert torch.equal(grad, before)


def test_indices_take_less_than_bits_and_pass_two_billion():
    assert is_sparse(31, 1000)
    assert not is_sparse(32, 1000)
    assert index_dtype(2**31 - 1) == torch.int32
    assert index_dtype(2**31) == torch.int64


def test_case_28_more_elements_than_an_int32_counts():
    size = 2**31 + 8
    packed = pack_bits(torch.empty(size, dtype=torch.bool, device="meta"))
    assert packed.shape == (2**28 + 1,)
    assert unpack_bits(packed, size).shape == (size,)
