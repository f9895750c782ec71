"""The phases of quantization-aware training: what still follows the data in an epoch, and what stays.

Ranges that move to the end would leave the weights trained for other grids than the last ones, and batch statistics
are noise that the converted model does not have. So both are frozen while there are epochs left to learn with that.

Source: Jacob et al. 2018, section 3.1 (quantization delay and folding); torchvision's train_quantization.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qtool.config.train import TrainConfig


class Phase(StrEnum):
    """What is frozen in an epoch; the value is how logs name it."""

    OBSERVE = "observe"
    BATCH_NORM_FROZEN = "batch norm frozen"
    OBSERVERS_FROZEN = "observers frozen"
    FROZEN = "observers and batch norm frozen"


class Freezable(Protocol):
    """A model whose ranges and batch statistics can be made to stay."""

    def train(self, mode: bool = True) -> object:
        """Go into training."""

    def freeze_observers(self, frozen: bool = True) -> None:
        """Let ranges stay, or follow."""

    def freeze_batch_norms(self, frozen: bool = True) -> None:
        """Let the statistics of batch norms stay, or follow."""


def phase_of(epoch: int, settings: TrainConfig) -> Phase:
    """Return the phase of an epoch, counted from 1.

    Example:
        >>> settings = TrainConfig(epochs=6, freeze_batch_norm_after=3, freeze_observers_after=4)
        >>> [phase_of(epoch, settings).value for epoch in (3, 4, 5)]
        ['observe', 'batch norm frozen', 'observers and batch norm frozen']
    """
    has_batch_norms_frozen = epoch > settings.freeze_batch_norm_after
    if epoch > settings.freeze_observers_after:
        return Phase.FROZEN if has_batch_norms_frozen else Phase.OBSERVERS_FROZEN
    return Phase.BATCH_NORM_FROZEN if has_batch_norms_frozen else Phase.OBSERVE


def enter(model: Freezable, phase: Phase) -> None:
    """Put the model into training, in a phase."""
    model.train()
    model.freeze_observers(phase in (Phase.OBSERVERS_FROZEN, Phase.FROZEN))
    model.freeze_batch_norms(phase in (Phase.BATCH_NORM_FROZEN, Phase.FROZEN))
