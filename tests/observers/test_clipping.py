import torch

from qtool.observers.clipping import search_range


def search(low, high, criterion, *, symmetric=False):
    ends = search_range(torch.tensor([low]).double(), torch.tensor([high]).double(), criterion, symmetric=symmetric)
    return [end.item() for end in ends]


def near(low, high):
    """Return the criterion that is smallest at low..high."""
    return lambda lows, highs: (lows / low).log().abs() + (highs / high).log().abs()


def test_each_end_is_found_by_itself():
    low, high = search(-100.0, 10.0, near(-1.7, 9.1))
    assert abs(low / -1.7 - 1) < 0.003
    assert abs(high / 9.1 - 1) < 0.003


def test_among_equals_the_whole_range_wins():
    assert search(-3.0, 5.0, lambda lows, _: torch.zeros_like(lows)) == [-3.0, 5.0]
    assert search(-3.0, 5.0, lambda lows, _: torch.full_like(lows, torch.inf), symmetric=True) == [-5.0, 5.0]


def test_zero_stays_between_the_ends():
    assert search(2.0, 5.0, near(-1.0, 5.0))[0] == 0.0
    assert search(-5.0, -2.0, lambda lows, _: lows.abs())[1] == 0.0


def test_symmetric_ends_stay_together():
    low, high = search(-3.0, 50.0, near(-4.0, 4.0), symmetric=True)
    assert low == -high
    assert abs(high / 4.0 - 1) < 0.003


def test_channels_are_searched_each_for_itself():
    best = torch.tensor([1.0, 5.0, 0.2]).double()
    whole = torch.full((3,), 9.0).double()
    low, high = search_range(-whole, whole, lambda _, highs: (highs / best).log().abs(), symmetric=True)
    assert torch.equal(low, -high)
    assert ((high / best).log().abs() < 0.003).all()


def test_the_result_is_never_worse_than_the_whole_range():
    def criterion(lows, highs):  # many local minima
        return (lows * 37.0).sin() + (highs * 91.0).cos()

    low, high = search(-1.0, 1.0, criterion)
    whole = criterion(torch.tensor(-1.0).double(), torch.tensor(1.0).double())
    assert criterion(torch.tensor(low).double(), torch.tensor(high).double()) <= whole
