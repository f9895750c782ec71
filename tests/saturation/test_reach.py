"""The proof by blocks, against the formula of its definition with every pair in int64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from qtool.backends.record import Pairing
from qtool.saturation import reach
from qtool.saturation.pairs import bounds_from, bounds_of, prove
from qtool.saturation.reach import ORDERED, beside, extreme_weights, reach_of
from qtool.saturation.verdict import INT16_MAX, INT16_MIN, Bound

CODES = st.one_of(st.integers(-128, 127), st.sampled_from([-128, -127, -65, -64, 0, 63, 64, 65, 127]))
WEIGHTS = stn.arrays(np.int8, stn.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6), elements=CODES)
ENDS = st.tuples(st.integers(-128, 255), st.integers(-128, 255)).map(sorted)
FAR_ENDS = st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6)).map(sorted)


def padded(pairs):
    return np.pad(pairs, ((0, 0), (0, 0), (0, pairs.shape[2] % 2)))


def by_definition(codes, a_lo, a_hi, pairing):
    """Every pair that can meet, in int64."""
    rows = codes.reshape(len(codes), -1).astype(np.int64)
    small = codes.ndim < 2 or (pairing is Pairing.CHANNELS and codes.shape[1] < 4)
    if pairing is Pairing.ANY or small:
        rows = np.pad(rows, ((0, 0), (0, 2)))
        first, second = np.triu_indices(rows.shape[1], 1)
        pairs = np.stack([rows[:, first], rows[:, second]], axis=2)
    else:
        at_positions = rows.reshape(len(codes), codes.shape[1], -1).swapaxes(1, 2)
        if pairing is Pairing.IN_ORDER:
            at_positions = at_positions.reshape(len(codes), 1, -1)
        pairs = padded(at_positions).reshape(len(codes), -1, 2)
    products = pairs * min(a_lo, 0), pairs * max(a_hi, 0)
    largest = np.maximum(*products).sum(axis=2).max(axis=1)
    smallest = np.minimum(*products).sum(axis=2).min(axis=1)
    sums = np.concatenate([largest, smallest])
    return Bound(
        pairing=pairing,
        num_channels=int(((largest > INT16_MAX) | (smallest < INT16_MIN)).sum()),
        worst_pair_sum=int(sums[np.abs(sums).argmax()]),
    )


@given(WEIGHTS, st.one_of(ENDS, FAR_ENDS, st.sampled_from([(0, 255), (0, 127), (-128, 127), (0, 0)])))
def test_bounds_are_those_of_the_definition(codes, ends):
    wanted = tuple(by_definition(codes, *ends, pairing) for pairing in Pairing)
    assert bounds_of(codes, *ends) == wanted
    for pairing, bound in zip(Pairing, wanted, strict=True):
        proof = prove(codes, *ends, pairing)
        assert (proof.num_channels, proof.worst_pair_sum) == (bound.num_channels, bound.worst_pair_sum)


@pytest.mark.parametrize("shape", [(300, 64), (40, 33), (9, 16, 3, 3), (9, 3, 5, 5), (300, 1, 3, 3), (7, 5, 3)])
@pytest.mark.parametrize("ends", [(0, 255), (-128, 127)])
def test_blocks_change_nothing(shape, ends, monkeypatch):
    codes = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    wanted = bounds_of(codes, *ends)
    assert wanted == tuple(by_definition(codes, *ends, pairing) for pairing in Pairing)
    monkeypatch.setattr(reach, "BLOCK_BYTES", 100)
    assert bounds_of(codes, *ends) == wanted
    parts = [reach_of(codes[start : start + 4], *ends) for start in range(0, len(codes), 4)]
    assert bounds_from(beside(parts), *ends) == wanted


@given(stn.arrays(np.int8, stn.array_shapes(min_dims=2, max_dims=2, min_side=4, max_side=9), elements=CODES), ENDS)
def test_the_weights_of_a_channel_can_come_in_parts(codes, ends):
    """As of a weight that is stored (in, out); parts have an even number of inputs, but for the last one."""
    whole = reach_of(codes, *ends)
    first, second = (reach_of(part, *ends, (Pairing.IN_ORDER,)) for part in (codes[:, :2], codes[:, 2:]))
    both = first.over_more_weights(second)
    assert (both.extremes[:, [0, 3]] == whole.extremes[:, [0, 3]]).all()
    for pairing in (Pairing.ANY, Pairing.IN_ORDER):
        assert (both.sums_of(pairing, *ends) == whole.sums_of(pairing, *ends)).all()


def test_any_memory_layout_will_do():
    codes = np.random.default_rng(2).integers(-128, 128, (6, 8, 3)).astype(np.int8)
    assert bounds_of(np.asfortranarray(codes), 0, 255) == bounds_of(codes, 0, 255)
    assert bounds_of(codes.transpose(2, 1, 0), 0, 255) == bounds_of(codes.transpose(2, 1, 0).copy(), 0, 255)


def test_a_weight_without_inputs_reaches_nothing():
    assert {bound.worst_pair_sum for bound in bounds_of(np.zeros((3, 0), dtype=np.int8), 0, 255)} == {0}


def test_extremes_of_one_and_of_equal_weights():
    assert extreme_weights(np.int8([[7]])).tolist() == [[7, 0, 0, 7]]
    assert extreme_weights(np.int8([[-128, -128, 127, 127]])).tolist() == [[-128, -128, 127, 127]]
    assert tuple(pairing for pairing in Pairing if pairing is not Pairing.ANY) == ORDERED
