import copy

import numpy as np
import pytest
import torch
from hypothesis import given

from qtool.errors import FileFormatError
from qtool.observers.bins import MAX_BINS
from qtool.observers.percentile import PercentileObserver
from tests.observers.streams import observe, same_state, streams


@given(streams)
def test_counts_are_those_of_numpy_in_the_final_bins(batches):
    observer = observe(PercentileObserver(), batches)
    everything = torch.cat(batches).double().numpy()
    if not everything.size:
        return
    edges, counts = (part.numpy() for part in observer.histogram())
    # Edges are exact in float64, and a value on an edge belongs to the right of it.
    expected = np.bincount(np.searchsorted(edges, everything, side="right") - 1, minlength=len(counts))
    assert np.array_equal(counts, expected)
    assert edges[0] <= everything.min() < edges[1]
    assert edges[-2] <= everything.max() < edges[-1]


def test_a_large_tensor_is_counted_in_pieces():
    x = torch.randn(200_001, generator=torch.manual_seed(0))
    whole = observe(PercentileObserver(), [x])
    assert int(whole.counts.sum()) == 200_001
    pieces = observe(PercentileObserver(), x.split(70_000))
    pieces.num_batches.fill_(1)
    assert same_state(whole, pieces)


def test_counts_above_uint32_are_saved_as_int64():
    observer = observe(PercentileObserver(), [torch.tensor([0.0, 1.0])])
    assert observer.to_arrays()["counts"].dtype == np.uint32
    observer.counts[0] = 2**32
    again = PercentileObserver()
    again.load_arrays(observer.to_arrays())
    assert again.counts[0].item() == 2**32
    assert same_state(again, observer)


def test_only_the_bins_in_use_are_saved():
    assert observe(PercentileObserver(), [torch.full((9,), 5.0)]).to_arrays()["counts"].tolist() == [9]
    assert PercentileObserver().to_arrays()["counts"].shape == (0,)


@pytest.mark.parametrize(
    "counts",
    [
        np.array([-1, 3]),
        np.array([1.0, 2.0]),
        np.ones((2, 2), dtype=np.uint32),
        np.ones(MAX_BINS + 1, dtype=np.uint32),
        np.ones(7, dtype=np.uint32),
        np.array([0, 2], dtype=np.uint32),
    ],
)
def test_damaged_counts_are_refused(counts):
    observer = observe(PercentileObserver(), [torch.tensor([0.0, 1.0])])
    before = copy.deepcopy(observer)
    with pytest.raises(FileFormatError, match="histogram"):
        observer.load_arrays(observer.to_arrays() | {"counts": counts})
    assert same_state(observer, before)
