import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qtool.observers.bins import MANTISSA_BITS, MAX_BINS, MIN_EXPONENT, Bins
from tests.observers.streams import values

ranges = st.tuples(values, values).map(sorted)


def fits(low, high, exponent):
    first, last = (math.floor(math.ldexp(end, -exponent)) for end in (low, high))
    return last - first < MAX_BINS and max(-low, high) < math.ldexp(1.0, exponent + MANTISSA_BITS)


@given(ranges)
def test_the_exponent_is_the_smallest_that_fits(ends):
    bins = Bins.of_range(*ends)
    assert fits(*ends, bins.exponent)
    assert bins.exponent == MIN_EXPONENT or not fits(*ends, bins.exponent - 1)
    assert 1 <= bins.count <= MAX_BINS


@given(ranges, ranges)
def test_a_wider_range_never_has_narrower_bins(one, other):
    both = Bins.of_range(min(one[0], other[0]), max(one[1], other[1]))
    assert both.exponent >= max(Bins.of_range(*one).exponent, Bins.of_range(*other).exponent)


@given(ranges)
def test_numbers_of_bins_are_exact_in_float32(ends):
    bins = Bins.of_range(*ends)
    assert np.float32(bins.first) == bins.first
    assert np.float32(bins.last) == bins.last


def test_data_spans_more_than_half_of_the_bins():
    for high in np.geomspace(0.01, 100.0, 200):
        assert MAX_BINS // 2 < Bins.of_range(0.0, float(high)).count <= MAX_BINS
