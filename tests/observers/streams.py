"""House strategies for observers: specs, and streams of tensors of very different magnitudes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qtool.types import Dtype, Granularity, Spec

UINT8 = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255)
REDUCED = Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, reduce_range=True)
SYMMETRIC = Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, symmetric=True)
CHANNEL = Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, granularity=Granularity.CHANNEL, axis=0, symmetric=True)

# Magnitudes from below the smallest scale to the end of float32, and the plain ones that models have.
values = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-8, 8, width=32),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 6.0, -1.0]),
)
streams = st.lists(
    hnp.arrays(np.float32, st.integers(0, 20), elements=values).map(torch.from_numpy), min_size=1, max_size=6
)


def observe(observer, batches):
    """Show the batches to the observer and return it."""
    for batch in batches:
        observer.update(batch)
    return observer


def same_state(a, b):
    """Say whether all buffers are equal bit for bit."""
    theirs = dict(b.named_buffers())
    return all(torch.equal(buffer, theirs.pop(name)) for name, buffer in a.named_buffers()) and not theirs
