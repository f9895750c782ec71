import pytest
import torch

from qtool.observers.moving_average import MIN_SHARE, MovingAverageObserver
from tests.observers.streams import UINT8, observe


def ends(observer):
    return [end.item() for end in observer.clipped_range(UINT8)]


def test_the_first_hundred_tensors_weigh_the_same():
    peaks = torch.rand(100, generator=torch.manual_seed(0))
    batches = [torch.tensor([-2 * peak, peak]) for peak in peaks]
    mean = peaks.double().mean().item()
    assert ends(observe(MovingAverageObserver(), batches)) == pytest.approx([-2 * mean, mean], rel=1e-6)
    assert ends(observe(MovingAverageObserver(), reversed(batches))) == pytest.approx([-2 * mean, mean], rel=1e-6)


def test_older_ones_are_forgotten_exponentially():
    observer = observe(MovingAverageObserver(), [torch.tensor([0.0, 1.0])] * 100 + [torch.tensor([0.0, 2.0])] * 50)
    assert ends(observer) == pytest.approx([0.0, 2.0 - (1 - MIN_SHARE) ** 50])


def test_one_outlier_counts_little():
    observer = observe(MovingAverageObserver(), [torch.tensor([-1.0, 1.0])] * 9 + [torch.tensor([-1.0, 101.0])])
    assert ends(observer) == pytest.approx([-1.0, 11.0])
    assert observer.high.item() == 101.0


def test_merging_is_the_union_of_the_averages():
    one = observe(MovingAverageObserver(), [torch.tensor([-1.0, 1.0]), torch.tensor([-3.0, 1.0])])
    other = observe(MovingAverageObserver(), [torch.tensor([-1.0, 5.0])])
    assert ends(one.merged([other])) == [-2.0, 5.0]
    assert ends(other.merged([one])) == [-2.0, 5.0]
