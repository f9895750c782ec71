import torch

from qtool.observers.min_max import MinMaxObserver
from tests.observers.streams import CHANNEL, REDUCED, SYMMETRIC, UINT8, observe


def test_range_of_all_that_was_seen():
    observer = observe(MinMaxObserver(), [torch.tensor([1.0, 2.0]), torch.tensor([-0.5]), torch.tensor([1.5])])
    assert [end.item() for end in observer.clipped_range(UINT8)] == [-0.5, 2.0]


def test_parameters_follow_the_spec_and_not_the_observer():
    observer = observe(MinMaxObserver(), [torch.tensor([0.0, 1.27])])
    assert observer.qparams(REDUCED).scale.item() == torch.tensor(1.27).double().div(127).float().item()
    assert observer.qparams(UINT8).scale.item() == torch.tensor(1.27).double().div(255).float().item()
    assert observer.qparams(SYMMETRIC).zero_point.item() == 0


def test_per_channel_equals_each_channel_alone():
    weight = torch.randn(5, 3, 2, 2)
    together = observe(MinMaxObserver(0), [weight]).qparams(CHANNEL)
    for channel in range(5):
        alone = observe(MinMaxObserver(), [weight[channel]]).qparams(SYMMETRIC)
        assert (together.scale[channel], together.zero_point[channel]) == alone


def test_axis_of_a_vector_and_of_the_middle():
    assert observe(MinMaxObserver(0), [torch.tensor([1.0, -2.0])]).low.tolist() == [1.0, -2.0]
    x = torch.arange(24.0).view(2, 3, 4)
    assert observe(MinMaxObserver(1), [x]).high.tolist() == x.amax(dim=(0, 2)).tolist()
