import pytest
import torch

from qtool.errors import UsageError
from qtool.observers.mse import MseObserver, MseWeightObserver
from qtool.observers.registry import (
    DEFAULT_ACTIVATION_OBSERVERS,
    DEFAULT_WEIGHT_OBSERVER,
    OBSERVERS,
    WEIGHT_OBSERVERS,
    make_observer,
)


def test_every_name_makes_an_observer():
    assert set(OBSERVERS) == {"minmax", "moving_average", "histogram", "percentile", "mse"}
    assert set(WEIGHT_OBSERVERS) == {"minmax", "mse"}
    for name in OBSERVERS:
        assert make_observer(name, non_finite="ignore").non_finite == "ignore"
    for name in WEIGHT_OBSERVERS:
        assert make_observer(name, axis=1).axis == 1


def test_defaults_exist():
    assert set(DEFAULT_ACTIVATION_OBSERVERS.values()) <= OBSERVERS.keys()
    assert DEFAULT_WEIGHT_OBSERVER in WEIGHT_OBSERVERS


def test_weights_and_activations_have_their_own_mse():
    assert type(make_observer("mse")) is MseObserver
    assert type(make_observer("mse", is_weight=True)) is MseWeightObserver
    assert type(make_observer("mse", axis=0)) is MseWeightObserver


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(UsageError, match=r"'minmx' is not an observer of activations.*did you mean 'minmax'"):
        make_observer("minmx")
    with pytest.raises(UsageError, match="'percentile' is not an observer of weights: there are minmax, mse"):
        make_observer("percentile", axis=0)


def test_observers_share_nothing():
    one, other = make_observer("mse"), make_observer("mse")
    one.update(torch.ones(3))
    assert int(other.num_batches) == 0
    assert int(other.counts.sum()) == 0
