from __future__ import annotations

import pytest
import torch

from qtool.numerics.grid import Grid
from qtool.numerics.kernels import native_max_pool
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.kernels.max_pool import Windows, equal_values_first, max_pool_codes, max_pool_grad

ONE = (1, 1, 1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("has_table", [False, True])
def test_c_and_aten_agree_in_codes_and_places(dtype, memory_format, has_table, monkeypatch):
    limits = torch.iinfo(dtype)
    grid = Grid(torch.tensor(0.03), torch.tensor(limits.min, dtype=torch.int32), limits.min, limits.max)
    table = equal_values_first(grid, torch.bfloat16) if has_table else None
    codes = torch.randint(limits.max - 12, limits.max + 1, (2, 5, 13, 17)).to(dtype)
    codes = codes.contiguous(memory_format=memory_format)
    grad = torch.randn(2, 5, 7, 9)
    windows = Windows.of(2, 3, 2, 1)
    found = max_pool_codes(codes, windows, table)
    dx = max_pool_grad(grad, found.places, windows, torch.empty_like(codes, dtype=torch.float32))
    monkeypatch.setattr(native_max_pool, "takes", lambda *_: False)
    expected = max_pool_codes(codes, windows, table)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(dx, max_pool_grad(grad, expected.places, windows, torch.empty_like(dx)))


def test_equal_values_share_the_smallest_code():
    grid = Grid(torch.tensor(0.03), torch.tensor(0, dtype=torch.int32), 0, 255)
    table = equal_values_first(grid, torch.bfloat16)
    values = decode(torch.arange(256, dtype=torch.uint8), grid, torch.bfloat16)
    for code in range(256):
        assert int(table[code]) == int((values == values[code]).nonzero()[0])
    assert len(set(table.tolist())) < 256
    assert equal_values_first(grid, torch.float32) is None


def test_windows_of_numbers_and_lists():
    assert Windows.of(2, 3) == Windows(2, (1, 3, 3), (1, 3, 3), (0, 0, 0), ONE, ceil_mode=False)
    assert Windows.of(3, [2, 3, 4], 1, 1).stride == ONE
    assert Windows.of(1, [5], [2], [2], [1]) == Windows(1, (1, 1, 5), (1, 1, 2), (0, 0, 2), ONE, ceil_mode=False)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("size", range(5, 14))
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (2, 3, 1, 1), (3, 2, 1, 2)])
def test_output_sizes_are_those_of_aten(kernel, stride, padding, dilation, size, ceil_mode):
    windows = Windows.of(1, kernel, stride, padding, dilation, ceil_mode)
    expected = torch.nn.functional.max_pool1d(torch.ones(1, 1, size), kernel, stride, padding, dilation, ceil_mode)
    assert windows.output_size((1, 1, size)) == (1, 1, expected.shape[-1])


def test_windows_that_see_only_padding_do_not_fit():
    assert Windows.of(1, 2, 1, 1, 3).fit((1, 1, 8))
    assert not Windows.of(1, 2, 1, 1, 3).fit((1, 1, 2))
    assert not Windows.of(2, 16).fit((1, 20, 20))
