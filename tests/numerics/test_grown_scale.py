import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.numerics.grown_scale import grown_scale
from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR

starts = st.floats(SCALE_FLOOR, SCALE_CEILING, width=32)
shifts = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(starts, shifts)
def test_every_shift_is_a_scale_in_range(start, shift):
    scale = grown_scale(torch.tensor(start), torch.tensor(shift))
    assert scale.dtype == torch.float32
    assert SCALE_FLOOR <= float(scale) <= SCALE_CEILING
    ratio = 1 + shift if shift >= 0 else 1 / (1 - shift)
    assert float(scale) == np.float32(np.clip(start * ratio, SCALE_FLOOR, SCALE_CEILING))


@given(starts)
def test_it_begins_where_it_starts_bit_for_bit(start):
    for zero in (0.0, -0.0):
        assert float(grown_scale(torch.tensor(start), torch.tensor(zero))) == start


@given(starts, st.lists(shifts, min_size=2, max_size=9))
def test_it_grows_with_the_shift(start, shifts):
    scales = grown_scale(torch.tensor(start), torch.tensor(sorted(shifts)))
    assert (scales.diff() >= 0).all()


@given(st.floats(2.0**-13, 16.0, width=32), st.floats(-20.0, 20.0, width=32))
def test_the_gradient_is_the_slope_by_differences_over_the_square_of_the_start(start, shift):
    def exact(at):
        return start * (1 + at if at >= 0 else 1 / (1 - at))

    step = 1e-6
    slope = (exact(shift + step) - exact(shift - step)) / (2 * step)
    leaf = torch.tensor(shift, requires_grad=True)
    grown_scale(torch.tensor(start), leaf).backward()
    assert float(leaf.grad) == pytest.approx(slope / start**2, rel=1e-4)


def test_a_step_of_sgd_is_that_of_a_scale_that_is_a_parameter():
    start, shift = torch.tensor([1e-4, 0.3, 70.0]), torch.zeros(3, requires_grad=True)
    gradient = torch.tensor([-0.002, -0.5, 3.0])
    grown_scale(start, shift).backward(gradient)
    moved = grown_scale(start, (shift - 0.01 * shift.grad).detach())
    torch.testing.assert_close(moved, start - 0.01 * gradient, rtol=1e-3, atol=0)


def test_at_an_end_of_the_range_a_gradient_that_leads_out_is_dropped():
    start, shift = torch.tensor([SCALE_FLOOR, SCALE_CEILING]), torch.zeros(2, requires_grad=True)
    grown_scale(start, shift).backward(torch.tensor([1.0, -1.0]))  # less, more
    assert shift.grad.tolist() == [0.0, 0.0]
    shift.grad = None
    grown_scale(start, shift).backward(torch.tensor([-1.0, 1.0]))
    assert float(shift.grad[0]) < 0 < float(shift.grad[1])
