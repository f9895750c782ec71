"""The states of all global random generators as arrays: dropout and stochastic depth draw from them in training."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from qtool.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping


def random_arrays() -> dict[str, np.ndarray]:
    """Return the states of Python's, numpy's and torch's generators, and of each GPU's that is in use."""
    _, words, next_gauss = random.getstate()
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)  # legacy=True gives a tuple
    arrays = {
        "python": np.array(words, dtype=np.int64),
        "python_gauss": np.array([] if next_gauss is None else [next_gauss], dtype=np.float64),
        "numpy": np.array([*state["state"]["key"], state["state"]["pos"], state["has_gauss"]], dtype=np.int64),
        "numpy_gauss": np.array([state["gauss"]], dtype=np.float64),
        "torch": torch.get_rng_state().numpy(),
    }
    if torch.cuda.is_initialized():
        arrays |= {f"cuda_{number}": s.numpy() for number, s in enumerate(torch.cuda.get_rng_state_all())}
    return arrays


def set_random_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Let all generators go on from what `random_arrays` gave.

    Raises:
        FileFormatError: an array is missing, or is no such state.
    """
    try:
        words, gauss = arrays["python"].tolist(), arrays["python_gauss"].tolist()
        random.setstate((3, tuple(words), gauss[0] if gauss else None))
        *key, position, has_gauss = arrays["numpy"].tolist()
        (numpy_gauss,) = arrays["numpy_gauss"].tolist()
        state = {"key": np.array(key, dtype=np.uint32), "pos": position}
        np.random.set_state({"bit_generator": "MT19937", "state": state, "has_gauss": has_gauss, "gauss": numpy_gauss})
        torch.set_rng_state(torch.from_numpy(arrays["torch"].copy()))
        if torch.cuda.is_available():
            for number in range(torch.cuda.device_count()):
                if f"cuda_{number}" in arrays:
                    torch.cuda.set_rng_state(torch.from_numpy(arrays[f"cuda_{number}"].copy()), number)
    except (LookupError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        msg = f"the states of the random generators are damaged ({error}); resume from an earlier checkpoint"
        raise FileFormatError(msg) from error
