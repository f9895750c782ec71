import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.numerics.mask import pack_mask, unpack_mask
from tests.numerics.strategies import SIZES


@given(st.lists(st.booleans(), max_size=70))
def test_packing_loses_nothing(bits):
    mask = torch.tensor(bits, dtype=torch.bool)
    packed = pack_mask(mask)
    assert packed.dtype == torch.uint8
    assert packed.numel() == math.ceil(len(bits) / 8)
    assert torch.equal(unpack_mask(packed, len(bits)), mask)


@pytest.mark.parametrize("size", SIZES)
def test_all_true_and_all_false(size):
    for mask in (torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)):
        assert torch.equal(unpack_mask(pack_mask(mask), size), mask)


def test_case_28_more_elements_than_an_int32_counts():
    size = 2**31 + 8
    packed = pack_mask(torch.empty(size, dtype=torch.bool, device="meta"))
    assert packed.shape == (2**28 + 1,)
    assert unpack_mask(packed, size).shape == (size,)
