import pytest
import torch

from qtool.numerics.qparams import affine_qparams
from qtool.observers.histogram import HistogramObserver, divergence
from qtool.observers.mse import MseObserver
from tests.observers.streams import REDUCED, SYMMETRIC, UINT8, observe


def ends(observer, spec=UINT8):
    return [end.item() for end in observer.clipped_range(spec)]


def numpy_free_divergence(edges, counts, qparams, spec):
    """D(P || Q) of one candidate, bin by bin as in the paper's slides."""
    scale, zero_point = qparams.scale[0].item(), qparams.zero_point[0].item()
    bins = [
        (round((left + right) / 2 / scale) + zero_point, count)
        for left, right, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        if not left <= 0.0 < right
    ]
    inside = [i for i, (code, _) in enumerate(bins) if spec.qmin <= code <= spec.qmax]
    reference = {i: float(bins[i][1]) for i in inside}
    reference[inside[0]] += sum(count for code, count in bins if code < spec.qmin)
    reference[inside[-1]] += sum(count for code, count in bins if code > spec.qmax)
    candidate = {}
    for i in inside:
        same = [bins[j][1] for j in inside if bins[j][0] == bins[i][0] and bins[j][1] > 0]
        even = sum(same) / len(same) if bins[i][1] else 0.0
        candidate[i] = max(even, 1e-4) if reference[i] else 0.0
    total_p, total_q = sum(reference.values()), sum(candidate.values())
    p = torch.tensor([reference[i] / total_p for i in inside], dtype=torch.float64)
    q = torch.tensor([candidate[i] / total_q for i in inside], dtype=torch.float64)
    return (p[p > 0] * (p[p > 0] / q[p > 0]).log()).sum().item()


@pytest.mark.parametrize("high", [2.0, 3.1, 4.5, 6.0])
def test_divergence_is_that_of_the_definition(high):
    x = torch.randn(5000, generator=torch.manual_seed(0))
    edges, counts = observe(HistogramObserver(), [x]).histogram()
    qparams = affine_qparams(torch.tensor([-2.5]), torch.tensor([high]), 0, 127)
    expected = numpy_free_divergence(edges, counts, qparams, REDUCED)
    assert divergence(edges, counts, qparams, REDUCED).item() == pytest.approx(expected, rel=1e-9)


def test_many_candidates_are_as_one_by_one():
    edges, counts = observe(HistogramObserver(), [torch.randn(5000, generator=torch.manual_seed(0))]).histogram()
    lows, highs = -torch.rand(20) - 1.5, torch.rand(20) + 1.5
    together = divergence(edges, counts, affine_qparams(lows, highs, 0, 255), UINT8)
    for i in range(20):
        alone = divergence(edges, counts, affine_qparams(lows[i : i + 1], highs[i : i + 1], 0, 255), UINT8)
        assert together[i].item() == pytest.approx(alone.item(), rel=1e-9)
        assert alone.item() >= 0.0


def test_a_far_outlier_is_cut_however_far_it_lies():
    x = torch.randn(100_000, generator=torch.manual_seed(0))
    near = ends(observe(HistogramObserver(), [x, torch.tensor([12.0])]))
    assert near[1] < 7.0
    # mse gives the outlier more room, the further out it lies
    assert ends(observe(MseObserver(), [x, torch.tensor([12.0])]))[1] < 12.0


def test_zeros_do_not_count():
    x = torch.rand(20_000, generator=torch.manual_seed(0)).pow(3) + 0.01
    assert ends(observe(HistogramObserver(), [x])) == ends(observe(HistogramObserver(), [x, torch.zeros(50_000)]))


@pytest.mark.parametrize("x", [torch.zeros(8), torch.tensor([-1.0, 1.0, 2.0]), torch.full((5,), -3.0)])
def test_a_histogram_with_nothing_to_lose_keeps_its_range(x):
    observer = observe(HistogramObserver(), [x])
    assert ends(observer) == [min(x.min().item(), 0.0), max(x.max().item(), 0.0)]
    amax = x.abs().max().item()
    assert ends(observer, SYMMETRIC) == [-amax, amax]
