"""House strategies: the numbers on which quantization goes wrong, drawn often."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qtool.numerics.qparams import affine_qparams

SIZES = (0, 1, 7, 8, 9)
RANGES = ((0, 255), (0, 127), (-127, 127), (-128, 127), (0, 15))
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

code_ranges = st.sampled_from(RANGES)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e4, 1e4, width=32)
ends = st.tuples(moderate, moderate).map(sorted)
scales = st.one_of(
    st.integers(-12, 6).map(lambda k: 2.0**k),  # ties fall on exact halves
    st.floats(2.0**-20, 2.0**10, width=32),
)


@st.composite
def affine_cases(draw):
    """Draw (x float32 (n,), scale float32 (), zero_point int32 (), qmin, qmax) with ties and both ends of the range."""
    qmin, qmax = draw(code_ranges)
    scale = np.float32(draw(scales))
    zero_point = draw(st.integers(qmin, qmax))
    steps = st.one_of(
        st.integers(2 * qmin - qmax, 2 * qmax - qmin).map(lambda n: n + 0.5),  # ties, half of them clamped
        st.integers(2 * qmin - qmax, 2 * qmax - qmin).map(float),
        st.floats(-600, 600, width=32),
    )
    on_grid = draw(hnp.arrays(np.float64, st.integers(0, 40), elements=steps))
    exact = (on_grid * float(scale)).astype(np.float32)
    x = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    return (
        torch.from_numpy(x),
        torch.tensor(scale),
        torch.tensor(zero_point, dtype=torch.int32),
        qmin,
        qmax,
    )


@st.composite
def channel_cases(draw):
    """Draw (x float32 (..., C, ...), scale (C,), zero_point (C,), qmin, qmax, axis), the axis often negative."""
    qmin, qmax = draw(code_ranges)
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    num_channels = shape[axis]
    scale = np.array([draw(scales) for _ in range(num_channels)], dtype=np.float32)
    zero_point = np.array([draw(st.integers(qmin, qmax)) for _ in range(num_channels)], dtype=np.int32)
    x = draw(hnp.arrays(np.float32, shape, elements=st.floats(-2000, 2000, width=32)))
    return torch.from_numpy(x), torch.from_numpy(scale), torch.from_numpy(zero_point), qmin, qmax, axis


@st.composite
def observed_ranges(draw):
    """Draw (lo, hi, qmin, qmax, QParams) of a range that was observed."""
    lo, hi = draw(ends)
    qmin, qmax = draw(code_ranges)
    return lo, hi, qmin, qmax, affine_qparams(lo, hi, qmin, qmax)


def streams(max_batches: int = 5, elements: st.SearchStrategy[float] = finite):
    """Lists of float32 tensors of 0 to 30 values of very different magnitudes."""
    batch = hnp.arrays(np.float32, st.integers(0, 30), elements=elements)
    return st.lists(batch.map(torch.from_numpy), min_size=1, max_size=max_batches)
