import math

import pytest
import torch

from qtool.numerics.ordered_sum import BLOCK, ordered_sum


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_it_is_the_sum(num_rows, size):
    rows = torch.randn(num_rows, size, generator=torch.Generator().manual_seed(0))
    found = ordered_sum(rows)
    assert (found.dtype, found.shape) == (torch.float64, (num_rows,))
    assert found.tolist() == pytest.approx([math.fsum(row) for row in rows.tolist()], rel=1e-12, abs=1e-12)


def test_the_number_of_threads_changes_no_bit():
    rows = torch.randn(1, 3_000_001, generator=torch.Generator().manual_seed(0)) * 1e3
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(float(ordered_sum(rows)))
    torch.set_num_threads(before)
    assert len(set(found)) == 1
