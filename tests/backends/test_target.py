"""The meet of backends: right on each of them, and no stricter than the strictest."""

from itertools import combinations

import pytest

from qtool.backends.faults import conv_fault
from qtool.backends.ranges import would_saturate
from qtool.backends.record import Support
from qtool.backends.registry import backend
from qtool.backends.target import PORTABLE, PORTABLE_BACKENDS, backends_of, target, target_name
from qtool.errors import UsageError
from qtool.types import Isa, Op

GROUPS = [group for size in (2, 3, 5) for group in combinations(PORTABLE_BACKENDS, size)]


def test_one_backend_is_itself():
    assert target(("qnnpack",)) is backend("qnnpack")


@pytest.mark.parametrize("names", GROUPS, ids=target_name)
def test_an_op_is_int8_where_all_have_it(names):
    for op in Op:
        lacks = [name for name in names if backend(name).rule(op).support is Support.UNSUPPORTED]
        rule = target(names).rule(op)
        assert (rule.support is Support.UNSUPPORTED) == bool(lacks)
        assert all(name in rule.note for name in lacks)


@pytest.mark.parametrize("isa", Isa)
@pytest.mark.parametrize("names", GROUPS, ids=target_name)
def test_a_kernel_saturates_where_one_of_them_does(names, isa):
    for op in Op:
        if target(names).rule(op).support is Support.UNSUPPORTED:
            continue
        for kernel in ({}, {"depthwise": True}, {"depthwise": True, "channel_multiplier": 1}):
            alone = [would_saturate(backend(name), isa, op, **kernel) for name in names]
            assert would_saturate(target(names), isa, op, **kernel) == any(alone)


def test_a_weight_has_scales_that_all_can_do():
    """fbgemm has one scale for a transposed weight, qnnpack one a channel too."""
    per_tensor = backend("fbgemm").rule(Op.CONV_TRANSPOSE2D).granularities
    assert len(backend("qnnpack").rule(Op.CONV_TRANSPOSE2D).granularities) == 2
    assert target(("qnnpack", "fbgemm")).rule(Op.CONV_TRANSPOSE2D).granularities == per_tensor


def test_a_fault_of_one_is_a_fault_of_all():
    assert conv_fault(target(("qnnpack", "fbgemm")), Op.CONV2D, (20, 4, 3, 3), groups=5)
    assert not conv_fault(target(("qnnpack", "onednn")), Op.CONV2D, (20, 4, 3, 3), groups=5)


def test_words_for_several():
    assert backends_of(PORTABLE) == PORTABLE_BACKENDS
    assert backends_of("onednn, x86") == ("onednn", "x86")
    assert target_name(PORTABLE_BACKENDS) == target(PORTABLE_BACKENDS).name == PORTABLE
    assert target_name(("onednn", "x86")) == "onednn,x86"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "found none"),
        (("x86", "x86"), "'x86' stands there twice"),
        (("x86", "qnpack"), "'qnpack' is not known.*'qnnpack'"),
        (("x86", "xnnpack"), "no model fits 'x86' and 'xnnpack' alike.*uint8 and int8"),
    ],
)
def test_what_has_no_meet_is_refused(names, message):
    with pytest.raises(UsageError, match=message):
        target(names)
