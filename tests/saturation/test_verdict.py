"""What `judge` makes of catalog, codes and bounds; all that is not known counts against a layer."""

import numpy as np
import pytest

from qtool.backends.record import Pairing
from qtool.backends.registry import backend
from qtool.backends.target import target
from qtool.saturation.pairs import bounds_of
from qtool.saturation.verdict import Bound, Layer, Sums, judge, reaches_past_int16
from qtool.stamp.schema import SaturationStamp
from qtool.types import Isa, Op

APART = np.zeros((2, 8, 1, 1), dtype=np.int8)
APART[0, 0] = APART[0, 2] = 127  # two that only meet where any may
BETWEEN = np.zeros((2, 5, 1, 2), dtype=np.int8)
BETWEEN[0, 4, 0, 0] = BETWEEN[0, 0, 0, 1] = 127  # the last channel of a place and the first of the next


def layer(weight, a_hi=255, **fields):
    return Layer(op=Op.CONV2D, a_lo=0, a_hi=a_hi, bounds=bounds_of(weight, 0, a_hi), **fields)


def sums(name, given, isa=Isa.NO_VNNI):
    return judge(backend(name), isa, given).sums


@pytest.mark.parametrize("name", ["fbgemm", "x86", "onednn", "onnxruntime"])
def test_without_weights_nothing_is_proved(name):
    judgement = judge(backend(name), Isa.ANY, Layer(op=Op.CONV2D, a_lo=0, a_hi=255))
    assert (judgement.sums, judgement.bound, judgement.is_right) == (Sums.UNKNOWN, None, False)


def test_who_sums_in_int32_is_exact_whatever_the_weights():
    loud = layer(np.full((2, 8, 3, 3), 127, dtype=np.int8))
    assert sums("qnnpack", loud) is Sums.EXACT
    assert sums("fbgemm", loud, Isa.VNNI) is Sums.EXACT
    assert {sums("fbgemm", loud, isa) for isa in (Isa.ANY, Isa.NO_VNNI)} == {Sums.CAN_SATURATE}


def test_seven_bits_are_exact_without_a_proof():
    assert sums("fbgemm", Layer(op=Op.LINEAR, a_lo=0, a_hi=127)) is Sums.EXACT
    assert sums("fbgemm", Layer(op=Op.LINEAR, a_lo=0, a_hi=128)) is Sums.UNKNOWN
    assert not reaches_past_int16(-127, 127)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (APART, {"fbgemm": True, "onednn": True, "x86": True, "onnxruntime": False}),
        (BETWEEN, {"fbgemm": False, "onednn": True, "x86": False, "onnxruntime": False}),
    ],
    ids=["apart", "between two places"],
)
def test_each_kernel_is_judged_by_its_own_pairs(weight, expected):
    assert {name: judge(backend(name), Isa.NO_VNNI, layer(weight)).is_right for name in expected} == expected


def test_the_bound_that_decides_is_the_worst_of_the_kernels_pairings():
    judgement = judge(backend("x86"), Isa.NO_VNNI, layer(BETWEEN))
    assert judgement.bound == Bound(pairing=Pairing.IN_ORDER, num_channels=1, worst_pair_sum=2 * 127 * 255)


def test_fewer_than_four_channels_pair_anyhow_on_onednn():
    first = np.zeros((1, 3, 3, 3), dtype=np.int8)
    first[0, 0, 0, 0] = first[0, 2, 2, 2] = 127
    assert sums("onednn", layer(first)) is Sums.CAN_SATURATE
    assert sums("fbgemm", layer(first)) is Sums.PROVED_SAFE


def test_depthwise_layers_have_kernels_of_their_own():
    weight = np.zeros((8, 1, 3, 3), dtype=np.int8)
    weight[:, 0, 0, 0] = weight[:, 0, 0, 1] = 127
    depthwise = layer(weight, depthwise=True, channel_multiplier=1)
    assert sums("onednn", depthwise) is Sums.EXACT
    assert sums("fbgemm", depthwise) is Sums.CAN_SATURATE
    assert sums("fbgemm", depthwise, Isa.VNNI) is Sums.CAN_SATURATE
    unknown_multiplier = layer(weight, depthwise=True)
    assert sums("onednn", unknown_multiplier) is Sums.CAN_SATURATE


def test_x86_takes_onednns_exact_depthwise_kernel_or_fbgemms():
    weight = np.zeros((8, 1, 3, 3), dtype=np.int8)
    weight[:, 0, 0, 1] = weight[:, 0, 0, 2] = 127  # places 1 and 2 do not meet in order
    assert sums("x86", layer(weight, depthwise=True, channel_multiplier=1)) is Sums.PROVED_SAFE


def test_the_meet_of_backends_is_as_strict_as_each():
    both = target(("fbgemm", "onednn"))
    assert set(both.rule(Op.CONV2D).pairings) == {Pairing.IN_ORDER, Pairing.CHANNELS}
    assert judge(both, Isa.ANY, layer(APART)).is_right
    assert not judge(both, Isa.ANY, layer(BETWEEN)).is_right
    assert not judge(target(("fbgemm", "onnxruntime")), Isa.ANY, layer(APART)).is_right


def test_a_pairing_without_a_bound_is_taken_for_any():
    old = SaturationStamp(verdict="can_saturate", num_channels=1, worst_pair_sum=64770)
    given = Layer(op=Op.CONV2D, a_lo=0, a_hi=255, bounds=old.known_bounds)
    assert sums("fbgemm", given) is Sums.CAN_SATURATE
    assert SaturationStamp(verdict="unknown", num_channels=0, worst_pair_sum=0).known_bounds == ()


def test_a_stamps_bounds_are_those_of_the_weights():
    bounds = bounds_of(APART, 0, 255)
    stamp = SaturationStamp(verdict="can_saturate", num_channels=1, worst_pair_sum=64770, bounds=bounds)
    assert stamp.known_bounds == bounds
    assert [bound.pairing for bound in bounds] == list(Pairing)
