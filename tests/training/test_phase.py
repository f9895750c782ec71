import pytest

from qtool.config.train import TrainConfig
from qtool.training.phase import Phase, enter, phase_of
from tests.training.stand_in import Classifier


def phases(epochs=6, **settings):
    return [phase_of(epoch, TrainConfig(epochs=epochs, **settings)) for epoch in range(1, epochs + 1)]


def test_by_default_batch_norms_are_frozen_after_three_epochs_and_observers_after_four():
    assert phases() == [Phase.OBSERVE] * 3 + [Phase.BATCH_NORM_FROZEN] + [Phase.FROZEN] * 2


def test_either_may_come_first_or_never():
    assert phases(freeze_observers_after=0, freeze_batch_norm_after=2, epochs=3) == [
        Phase.OBSERVERS_FROZEN,
        Phase.OBSERVERS_FROZEN,
        Phase.FROZEN,
    ]
    assert set(phases(freeze_observers_after=6, freeze_batch_norm_after=6)) == {Phase.OBSERVE}


@pytest.mark.parametrize(
    ("phase", "observers", "batch_norms"),
    [
        (Phase.OBSERVE, False, False),
        (Phase.BATCH_NORM_FROZEN, False, True),
        (Phase.OBSERVERS_FROZEN, True, False),
        (Phase.FROZEN, True, True),
    ],
)
def test_a_phase_sets_all_of_the_models_state(phase, observers, batch_norms):
    for before in (True, False):
        model = Classifier().eval()
        model.frozen = {"observers": before, "batch_norms": before}
        enter(model, phase)
        assert model.training
        assert model.frozen == {"observers": observers, "batch_norms": batch_norms}
