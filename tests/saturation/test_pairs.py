"""The proof against brute force over all pairings, and against engines whose instruction sets are capped."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from qtool.errors import RangeError
from qtool.saturation.pairs import INT16_MAX, INT16_MIN, Proof, SaturationVerdict, prove
from tests.backends.engines.cases import Geometry, kernel_case
from tests.backends.engines.client import AVX2, AVX512, UNCAPPED, largest_errors

SAFE, CAN_SATURATE = SaturationVerdict.SAFE, SaturationVerdict.CAN_SATURATE
UINT8 = st.tuples(st.integers(0, 255), st.integers(0, 255)).map(sorted)
INT8 = st.tuples(st.integers(-128, 127), st.integers(-128, 127)).map(sorted)
# Near the bounds as often as anywhere: 64 and 65 decide at 0..255, 127 and 128 at 0..127.
CODES = st.one_of(st.integers(-128, 127), st.sampled_from([-128, -127, -65, -64, 63, 64, 65, 127]))
WEIGHTS = stn.arrays(np.int8, stn.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5), elements=CODES)


def codes(*rows):
    return np.array(rows, dtype=np.int8)


def brute_force(weight_codes, a_lo, a_hi):
    """All pairs of one channel's products, with zeros beside the weights and among the activations."""
    activations = {min(a_lo, 0), 0, max(a_hi, 0)}
    worst, num_channels = 0, 0
    for channel in weight_codes.tolist():
        pairs = combinations([*channel, 0, 0], 2)
        sums = [a * v + b * w for v, w in pairs for a, b in product(activations, repeat=2)]
        num_channels += any(not INT16_MIN <= found <= INT16_MAX for found in sums)
        worst = max([worst, *sums], key=abs)
    return num_channels, abs(worst)


@given(WEIGHTS, st.one_of(UINT8, INT8))
def test_proof_equals_brute_force(weight_codes, a_range):
    proof = prove(weight_codes, *a_range)
    assert (proof.num_channels, abs(proof.worst_pair_sum)) == brute_force(weight_codes, *a_range)
    assert proof.verdict is (CAN_SATURATE if proof.num_channels else SAFE)


@given(WEIGHTS, UINT8)
def test_the_order_of_weights_does_not_matter(weight_codes, a_range):
    shuffled = np.random.default_rng(0).permutation(weight_codes, axis=1)
    assert prove(shuffled, *a_range) == prove(weight_codes, *a_range)


@given(WEIGHTS)
def test_the_reduced_range_with_symmetric_weights_is_always_safe(weight_codes):
    assert prove(np.maximum(weight_codes, -127), 0, 127).verdict is SAFE


@pytest.mark.parametrize(
    ("weight_codes", "a_hi", "verdict", "worst"),
    [
        (codes([64, 64]), 255, SAFE, 32640),
        (codes([64, 65]), 255, CAN_SATURATE, 32895),
        (codes([-64, -64]), 255, SAFE, -32640),
        (codes([-64, -65]), 255, CAN_SATURATE, -32895),
        (codes([-128, -128]), 128, SAFE, -32768),  # int16 goes one further on this side
        (codes([-128, -128]), 129, CAN_SATURATE, -33024),
        (codes([127, 1]), 255, SAFE, 32640),  # two weights of one sign, not the largest twice
        (codes([127, 2]), 255, CAN_SATURATE, 32895),
        (codes([127, -127]), 255, SAFE, 32385),  # signs that differ cannot add up where activations are positive
        (codes([127]), 255, SAFE, 32385),  # a single weight meets a zero
        (codes([0, 0, 0]), 255, SAFE, 0),
        (codes([127, 127, 127, 127]), 127, SAFE, 32258),
        (codes([64, 0, 0, 64]), 255, SAFE, 32640),  # any pairing: those far apart too
        (codes([71, 0, 0, 0, 107]), 211, CAN_SATURATE, 37558),
    ],
)
def test_one_channel(weight_codes, a_hi, verdict, worst):
    proof = prove(weight_codes, 0, a_hi)
    assert proof == Proof(verdict=verdict, num_channels=int(verdict is CAN_SATURATE), worst_pair_sum=worst)


def test_signed_activations_add_up_weights_of_both_signs():
    """127 * 127 + (-128) * (-128) = 32513; with -127 on both sides each pair stays inside."""
    assert prove(codes([127, -128]), -128, 127) == Proof(verdict=SAFE, num_channels=0, worst_pair_sum=32513)
    assert prove(codes([-128, -128]), -128, 127).verdict is CAN_SATURATE


def test_the_smallest_activation_matters():
    """Codes that are all negative reach further with the negative end than with the positive one."""
    assert prove(codes([100, 100]), -128, 10).worst_pair_sum == -25600


def test_zero_counts_as_an_activation_that_is_possible():
    """Kernels fill up with zeros, so a pair can have one product only."""
    assert prove(codes([127, -127]), 200, 255).worst_pair_sum == 127 * 255


def test_channels_are_counted():
    proof = prove(codes([64, 64, 0], [65, 64, 0], [1, 2, 3], [-100, 3, -100]), 0, 255)
    assert proof == Proof(verdict=CAN_SATURATE, num_channels=2, worst_pair_sum=-51000)


def test_kernel_dimensions_belong_to_the_channel():
    weight = np.zeros((2, 3, 3, 3), dtype=np.int8)
    weight[1, 0, 0, 0] = weight[1, 2, 2, 2] = 100
    assert prove(weight, 0, 255) == Proof(verdict=CAN_SATURATE, num_channels=1, worst_pair_sum=51000)


def test_the_weight_is_left_as_it_is():
    weight = codes([5, 3, 4, 1, 2])
    prove(weight, 0, 255)
    assert weight.tolist() == [[5, 3, 4, 1, 2]]


@pytest.mark.parametrize(
    ("weight_codes", "a_range", "message"),
    [
        (np.ones((2, 2), dtype=np.int16), (0, 255), "weight codes are int16 of shape"),
        (np.ones((2, 2), dtype=np.uint8), (0, 255), "weight codes are uint8 of shape"),
        (np.int8(3), (0, 255), r"of shape \(\)"),
        (np.ones((0, 2), dtype=np.int8), (0, 255), r"of shape \(0, 2\)"),
        (codes([1]), (5, 4), r"activation codes 5\.\.4: the smallest must not be above the largest"),
    ],
)
def test_what_is_not_a_weight_is_refused(weight_codes, a_range, message):
    with pytest.raises(RangeError, match=message):
        prove(weight_codes, *a_range)


GEOMETRIES = [
    Geometry(channels=(64, 16)),
    Geometry(channels=(33, 8), batch=4),
    Geometry(channels=(16, 16), kernel=(1, 1)),
    Geometry(channels=(3, 16), kernel=(3, 3)),
    Geometry(channels=(16, 16), kernel=(3, 3), groups=4),
    Geometry(channels=(16, 16), kernel=(3, 3), groups=16),
    Geometry(channels=(8, 16), kernel=(5, 5), groups=8),
    Geometry(channels=(8, 8), kernel=(3,)),
]
ENGINES = ("fbgemm", "x86", "onednn", "plain")


def weights_at_the_bound(geometry, a_hi, generator):
    """Weights whose worst pair sum is as large as it can be and still proved safe, in every channel and pairing."""
    most = INT16_MAX // a_hi  # what two weights of one sign may add up to
    half = most // 2
    w = generator.integers(-half, half + 1, geometry.weight_shape)
    w = np.where(generator.random(w.shape) < 0.7, np.sign(w + 0.5) * half, w)
    rows = w.reshape(len(w), -1)
    rows[:, 0] = min(127, most - half)
    return w.clip(-127, 127).astype(np.int8)


@pytest.mark.parametrize("caps", [AVX2, AVX512, UNCAPPED], ids=["AVX2", "AVX-512 without VNNI", "uncapped"])
def test_safe_is_never_wrong_on_a_real_engine(caps):
    """Every engine, every kind of kernel, weights right at the bound: also no kernel adds more than pairs in int16."""
    generator = np.random.default_rng(5)
    cases = []
    for engine, geometry, a_hi in product(ENGINES, GEOMETRIES, (255, 200, 130)):
        weight = weights_at_the_bound(geometry, a_hi, generator)
        proof = prove(weight, 0, a_hi)
        assert proof.verdict is SAFE
        assert abs(proof.worst_pair_sum) > 32000
        activations = (a_hi, generator.integers(0, a_hi + 1, geometry.channels[0]))
        cases += [kernel_case(engine, geometry, weight, activation) for activation in activations]
    assert set(largest_errors(cases, caps)) == {0}


@pytest.mark.parametrize("caps", [AVX2, AVX512], ids=["AVX2", "AVX-512 without VNNI"])
def test_past_the_bound_the_engine_is_wrong(caps):
    """So that the test above can fail: one step more per weight, and the sums are off."""
    geometries = [geometry for geometry in GEOMETRIES if geometry.groups != 4]  # fbgemm's grouped kernel is exact
    cases = []
    for geometry in geometries:
        weight = np.full(geometry.weight_shape, 65, dtype=np.int8)
        proof = Proof(verdict=CAN_SATURATE, num_channels=geometry.channels[1], worst_pair_sum=33150)
        assert prove(weight, 0, 255) == proof
        cases.append(kernel_case("fbgemm", geometry, weight, 255))
    assert 0 not in largest_errors(cases, caps)
