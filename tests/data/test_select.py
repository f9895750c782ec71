import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.config.rules import MAX_SEED
from qtool.config.schema import SelectConfig
from qtool.data.select import selected_indices
from qtool.errors import DataError


def test_without_select_all_samples_are_taken_in_order():
    assert selected_indices(4, None, None) == (0, 1, 2, 3)
    assert selected_indices(4, None, 2) == (0, 1)
    assert selected_indices(4, None, 9) == (0, 1, 2, 3)


def test_a_seed_means_these_samples_for_good():
    # Whoever calibrated with a seed must get the same photos from every later version.
    assert selected_indices(20, SelectConfig(count=10, seed=0), None) == (1, 2, 4, 6, 8, 10, 13, 17, 18, 19)
    assert selected_indices(20, SelectConfig(count=10, seed=1), None) == (1, 2, 3, 4, 6, 7, 10, 14, 16, 17)
    assert selected_indices(5, SelectConfig(count=2, seed=0, complement=True), None) == (1, 3, 4)


def test_limit_comes_after_select():
    drawn = selected_indices(20, SelectConfig(count=10, seed=0), None)
    assert selected_indices(20, SelectConfig(count=10, seed=0), 3) == drawn[:3]


@given(st.data(), st.integers(1, 60), st.integers(0, MAX_SEED))
def test_a_draw_and_its_complement_share_nothing_and_are_everything(data, num_samples, seed):
    count = data.draw(st.integers(1, num_samples))
    drawn = selected_indices(num_samples, SelectConfig(count=count, seed=seed), None)
    assert len(drawn) == count
    assert list(drawn) == sorted(set(drawn))
    if count < num_samples:
        others = selected_indices(num_samples, SelectConfig(count=count, seed=seed, complement=True), None)
        assert sorted(drawn + others) == list(range(num_samples))


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (SelectConfig(count=5), "select.count: 5 of 4 samples.*Draw fewer"),
        (SelectConfig(count=4, complement=True), "select.count: 4 of 4 samples: none would be left"),
        (SelectConfig(count=5, complement=True), "select.count: 5 of 4 samples"),
    ],
)
def test_what_cannot_be_drawn_is_refused(select, message):
    with pytest.raises(DataError, match=message):
        selected_indices(4, select, None)
