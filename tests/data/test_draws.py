import random

import numpy as np
import pytest
import torch

from qtool.data.draws import drawing_from, seed_of


def drawn():
    return random.random(), float(np.random.rand()), float(np.random.randn()), float(torch.rand(()))


def test_what_is_drawn_follows_from_the_integers_alone():
    with drawing_from(3, 1, 7):
        first = drawn()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    with drawing_from(3, 1, 7):
        assert drawn() == first
    for other in ((3, 1, 8), (3, 2, 7), (4, 1, 7)):
        with drawing_from(*other):
            assert not set(drawn()) & set(first)


def test_generators_go_on_as_before_also_after_an_error():
    def sequence(*, interrupted):
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        before = random.random(), float(np.random.rand()), float(torch.rand(()))
        if interrupted:
            with pytest.raises(ZeroDivisionError), drawing_from(1):
                drawn()[0] / 0
        return before, drawn()

    assert sequence(interrupted=True) == sequence(interrupted=False)


def test_seeds_of_neighbours_differ():
    seeds = {seed_of(seed, epoch, sample) for seed in range(10) for epoch in range(10) for sample in range(100)}
    assert len(seeds) >= 10_000 - 2  # 10**8 / 2**33: a chance of about 1 % for one meeting
    assert all(0 <= seed < 2**32 for seed in seeds)
