"""What training must cost at most, and what it should: ratios to float eager in the same memory format.

At batch 32 of 224x224, ResNet50 16. Measured at another size the same ratios are a hint, no proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qtool.training.step_cost import StepCost

BATCHES = {"mobilenet_v2": 32, "resnet18": 32, "resnet50": 16}

SAVED, PEAK, STEP = "saved", "peak", "step"


@dataclass(frozen=True)
class Bar:
    """A ratio that must not be exceeded, and one that should not be."""

    must: float
    goal: float

    def verdict(self, ratio: float) -> str:
        """Return how a ratio stands to both.

        Example:
            >>> Bar(0.46, 0.43).verdict(0.44)
            'met, goal 0.43 not'
        """
        if ratio > self.must:
            return f"NOT MET: {self.must:.2f}"
        return "goal met" if ratio <= self.goal else f"met, goal {self.goal:.2f} not"


BARS = {
    ("mobilenet_v2", "compressed"): {SAVED: Bar(0.46, 0.43), PEAK: Bar(0.65, 0.50), STEP: Bar(1.05, 0.85)},
    ("mobilenet_v2", "recompute"): {SAVED: Bar(0.12, 0.09), PEAK: Bar(0.38, 0.27), STEP: Bar(1.10, 0.90)},
    ("resnet18", "compressed"): {SAVED: Bar(0.60, 0.55), PEAK: Bar(0.85, 0.70), STEP: Bar(1.15, 1.0)},
    ("resnet18", "mixed"): {SAVED: Bar(0.25, 0.20)},
    ("resnet18", "recompute"): {SAVED: Bar(0.14, 0.10), PEAK: Bar(0.60, 0.48), STEP: Bar(1.35, 1.05)},
    ("resnet50", "compressed"): {SAVED: Bar(0.68, 0.64), PEAK: Bar(0.85, 0.70), STEP: Bar(1.15, 1.0)},
    ("resnet50", "mixed"): {SAVED: Bar(0.25, 0.18)},
    ("resnet50", "recompute"): {SAVED: Bar(0.16, 0.12), PEAK: Bar(0.42, 0.30), STEP: Bar(1.35, 1.1)},
}

AUTOCAST = Bar(0.75, 0.75)
"""MobileNetV2, saved under bfloat16 autocast, against float under bfloat16 autocast."""

OFF_TO_ON = {PEAK: Bar(1.0, 1.0), STEP: Bar(1.25, 1.25)}
"""The prepared model with fake-quantize against itself without."""


def ratios(cost: StepCost) -> dict[str, float]:
    """Return what bars are held against; the peak is that under malloc's default."""
    return {SAVED: cost.saved_ratio, PEAK: cost.default_peak_ratio, STEP: cost.step_ratio}
