"""One seed for every source of random numbers that model and data code may use."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's global generators.

    Args:
        seed: 0..2**32 - 1, the range that numpy takes.

    Example:
        >>> seed_everything(0)
        >>> round(float(torch.rand(1)), 4)
        0.4963
    """
    random.seed(seed)
    np.random.seed(seed)  # code of users still draws from the global generator
    torch.manual_seed(seed)
