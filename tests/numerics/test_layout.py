import pytest
import torch

from qtool.numerics.layout import flatten_as_stored, memory_order, restore_from_stored

BASE = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)


@pytest.mark.parametrize(
    "x", [BASE, BASE.to(memory_format=torch.channels_last), BASE.permute(2, 0, 3, 1), BASE[0, 0, 0, 0]]
)
def test_dense_tensors_are_flattened_without_a_copy(x):
    flat = flatten_as_stored(x)
    assert flat.data_ptr() == x.data_ptr()
    assert flat.is_contiguous()
    assert torch.equal(restore_from_stored(flat, x.shape, memory_order(x)), x)


@pytest.mark.parametrize("x", [BASE[:, ::2], BASE[..., 1:3], BASE[:, :1].expand(2, 7, 4, 5), BASE[:0]])
def test_other_tensors_are_flattened_with_all_elements(x):
    flat = flatten_as_stored(x)
    assert flat.numel() == x.numel()
    assert torch.equal(restore_from_stored(flat, x.shape, memory_order(x)), x)
