"""scikit-learn's handwritten digits: 1797 grey pictures of 8x8 in ten classes, inside its package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from qtool.data.batch import Sample
from qtool.errors import MissingDependencyError

if TYPE_CHECKING:
    from qtool.config.schema import DigitsSource

NUM_TEST = 360
"""The last 360 pictures are the test split (chosen: a fifth; scikit-learn names no split)."""

WHITE = 16
"""A pixel counts the set dots of a 4x4 block, 0..16. Source: sklearn.datasets.load_digits."""


@dataclass(frozen=True, kw_only=True)
class Digits:
    """One split of the digits.

    Attributes:
        split: its name.
        images: float32 (samples, 8, 8) in 0..1.
        labels: class indices (samples,).
    """

    split: str
    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.integer]

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        """Return one picture as a sample, float32 (1, 8, 8)."""
        picture = torch.from_numpy(self.images[index])[None]
        return Sample(name=f"digits {self.split}[{index}]", inputs=(picture,), label=int(self.labels[index]))


def open_digits(source: DigitsSource) -> Digits:
    """Return one split: `train` is the first 1437 digits, `test` the last 360.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError as error:
        msg = "data of kind digits needs scikit-learn, which is not installed: python -m pip install scikit-learn"
        raise MissingDependencyError(msg) from error
    digits = datasets.load_digits()
    images = (digits.images / WHITE).astype(np.float32)
    split = slice(-NUM_TEST, None) if source.split == "test" else slice(None, -NUM_TEST)
    return Digits(split=source.split, images=images[split], labels=digits.target[split])
