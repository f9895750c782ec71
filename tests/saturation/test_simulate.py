"""The simulation against a plain loop, and against kernels under capped instruction sets: output for output."""

from itertools import product

import numpy as np
import pytest

from qtool.backends.record import Pairing
from qtool.errors import RangeError
from qtool.saturation.pairs import INT16_MAX, INT16_MIN
from qtool.saturation.reach import pairs_of
from qtool.saturation.simulate import Window, _Taps, simulate
from tests.backends.engines.client import AVX2, ask

SEED = 7


def test_a_linear_layer_against_a_loop():
    generator = np.random.default_rng(SEED)
    rows = generator.integers(0, 256, (6, 9))
    weight = generator.integers(-127, 128, (5, 9)).astype(np.int8)
    found = simulate(rows, weight, Window(), Pairing.IN_ORDER)
    num_clipped, errors = 0, np.zeros((6, 5), dtype=int)
    for (n, row), (o, weights) in product(enumerate(rows), enumerate(weight.astype(int))):
        for start in range(0, 9, 2):
            exact = int(row[start : start + 2] @ weights[start : start + 2])
            num_clipped += not INT16_MIN <= exact <= INT16_MAX
            errors[n, o] += min(max(exact, INT16_MIN), INT16_MAX) - exact
    assert num_clipped > 0
    assert (found.num_clipped, found.num_sums) == (num_clipped, 6 * 5 * 5)
    assert np.array_equal(found.errors, errors)


CASES = {
    "linear": ((7, 9), (12, 9), Window()),
    "conv1d": ((2, 4, 9), (6, 4, 3), Window(stride=(1,), padding=(1,), dilation=(1,))),
    "conv2d": ((2, 5, 7, 6), (6, 5, 3, 3), Window(stride=(1, 1), padding=(1, 1), dilation=(1, 1))),
    "stride and dilation": ((2, 4, 9, 9), (6, 4, 3, 3), Window(stride=(2, 2), padding=(0, 2), dilation=(2, 1))),
    "groups": ((1, 12, 6, 6), (8, 6, 3, 3), Window(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=2)),
    "depthwise": ((2, 8, 7, 7), (8, 1, 3, 3), Window(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=8)),
    "conv3d": ((1, 4, 4, 5, 5), (4, 4, 3, 3, 3), Window(stride=(1,) * 3, padding=(1,) * 3, dilation=(1,) * 3)),
    "transposed": (
        (2, 3, 5, 5),
        (4, 3, 3, 3),
        Window(stride=(2, 1), padding=(1, 0), dilation=(1, 1), output_padding=(1, 0)),
    ),
    "transposed, groups": (
        (1, 6, 5),
        (4, 3, 3),
        Window(stride=(2,), padding=(1,), dilation=(1,), output_padding=(1,), groups=2),
    ),
}
OPS = {"linear": "linear", "conv1d": "conv1d", "conv3d": "conv3d", "transposed": "conv_transpose2d"}


def layer_of(name, scale):
    x_shape, w_shape, window = CASES[name]
    generator = np.random.default_rng(SEED)
    x = generator.integers(0, 256, x_shape)
    return x, (generator.integers(-127, 128, w_shape) * scale).astype(np.int8), window


def exact_sums(x, weight, window, zero_point):
    """The sums of a plain loop over the places of the window, which the simulation's view of the input gives."""
    taps = _Taps.of(x, weight, window, zero_point)
    per_group = len(weight) // window.groups
    sums = np.zeros((len(x), len(weight), *taps.positions), dtype=np.int64)
    for channel, place in product(range(len(weight)), range(weight[0].size)):
        sums[:, channel] += (taps.at(channel // per_group, place) - zero_point) * int(weight[channel].ravel()[place])
    return sums


@pytest.mark.parametrize("scale", [1, 0.4], ids=["loud", "quiet"])
@pytest.mark.parametrize("zero_point", [0, 137])
@pytest.mark.parametrize(("name", "way"), [*product(CASES, ["fbgemm"]), ("linear", "plain"), ("conv2d", "plain")])
def test_a_kernels_sums_are_the_simulated_ones(name, way, zero_point, scale):
    """Output for output: what is simulated to clip is off by just that much, and all else is exact."""
    x, weight, window = layer_of(name, scale)
    pairing = Pairing.CHANNELS if way == "plain" else Pairing.IN_ORDER
    found = simulate(x, weight, window, pairing, zero_point=zero_point)
    assert (found.num_clipped > 0) == (scale == 1)
    assert found.errors.any() == (found.num_clipped > 0)
    request = {
        "way": way,
        "op": "conv_transpose1d" if name == "transposed, groups" else OPS.get(name, "conv2d"),
        "x": x.tolist(),
        "weight": weight.tolist(),
        "window": {key: value for key, value in vars(window).items() if value is not None},
        "zero_point": zero_point,
        "sums": (exact_sums(x, weight, window, zero_point) + found.errors).tolist(),
    }
    assert ask("whole_sums", [request], AVX2) == [0]


def test_any_two_is_no_order():
    with pytest.raises(RangeError, match="'any' is no order: simulate 'in_order' or 'channels'"):
        simulate(np.ones((1, 2)), np.ones((1, 2), dtype=np.int8), Window(), Pairing.ANY)


def test_what_is_left_over_meets_zero():
    assert pairs_of(np.array([[1, 2, 3]]), Pairing.IN_ORDER).tolist() == [[[1, 2], [3, 0]]]
