import random

import numpy as np
import pytest
import torch

from qtool.errors import FileFormatError
from qtool.training.random_state import random_arrays, set_random_arrays


def drawn():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), float(torch.rand(()))


@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_all_generators_go_on(num_before):
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    for _ in range(num_before):
        drawn()  # gauss and randn make two numbers at a time and keep one
    arrays = random_arrays()
    expected = [drawn() for _ in range(3)]
    random.seed(4), np.random.seed(5), torch.manual_seed(6)
    set_random_arrays(arrays)
    assert [drawn() for _ in range(3)] == expected


def test_arrays_hold_nothing_but_numbers():
    assert {array.dtype.kind for array in random_arrays().values()} <= {"i", "f", "u"}


@pytest.mark.parametrize("name", ["python", "numpy", "numpy_gauss", "torch"])
@pytest.mark.parametrize("damage", [np.array([], np.int64), np.array([-1, 2], np.int64)])
def test_a_damaged_state_is_an_error(name, damage):
    check_is_refused({**random_arrays(), name: damage})


@pytest.mark.parametrize("name", ["python", "python_gauss", "numpy", "numpy_gauss", "torch"])
def test_a_missing_state_is_an_error(name):
    check_is_refused({key: array for key, array in random_arrays().items() if key != name})


def check_is_refused(arrays):
    before = random.getstate()
    try:
        with pytest.raises(FileFormatError, match="damaged"):
            set_random_arrays(arrays)
    finally:
        random.setstate(before)
