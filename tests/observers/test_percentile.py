import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import RangeError
from qtool.observers.percentile import PercentileObserver
from tests.observers.streams import UINT8, observe, streams


def ends(observer):
    return [end.item() for end in observer.clipped_range(UINT8)]


def test_both_tails_are_cut():
    x = torch.randn(200_000, generator=torch.manual_seed(0))
    x[:5] = torch.tensor([40.0, -40.0, 30.0, 50.0, -90.0])
    low, high = ends(observe(PercentileObserver(percentile=99.9), [x]))
    width = 2.0**-4  # of a bin
    assert low == pytest.approx(np.quantile(x.numpy(), 0.001), abs=2 * width)
    assert high == pytest.approx(np.quantile(x.numpy(), 0.999), abs=2 * width)


@given(streams)
def test_all_percent_are_the_exact_range(batches):
    observer = observe(PercentileObserver(percentile=100.0), batches)
    if int(observer.num_batches):
        assert ends(observer) == [observer.low.item(), observer.high.item()]


@given(streams, st.floats(50.1, 99.99))
def test_the_range_lies_in_the_exact_one_and_in_order(batches, percentile):
    observer = observe(PercentileObserver(percentile=percentile), batches)
    if int(observer.num_batches):
        low, high = ends(observer)
        assert observer.low.item() <= low <= high <= observer.high.item()


def test_percentile_is_kept_when_merged():
    observer = observe(PercentileObserver(percentile=90.0), [torch.arange(101.0)])
    assert ends(observer.merged([])) == ends(observer) == pytest.approx([10.0, 90.0], abs=0.1)


@pytest.mark.parametrize("percentile", [50.0, 100.1, -1.0, float("nan")])
def test_other_percentiles_are_refused(percentile):
    with pytest.raises(RangeError, match="percentile is"):
        PercentileObserver(percentile=percentile)
