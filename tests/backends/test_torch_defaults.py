"""Our default ranges beside torch.ao's, asked of torch itself, so that an upstream change is noticed."""

import pytest

from qtool.backends.host import host_facts
from qtool.backends.ranges import Consumer, activation_spec, check_activation, int_range, weight_spec
from qtool.backends.record import RangeName
from qtool.backends.registry import backend
from qtool.types import Dtype, Isa, Op, Spec
from tests.backends.engines.client import ask

# Where we differ, on purpose: (engine, role): (torch's, ours, why).
DIFFERENCES = {
    ("fbgemm", "weight"): ([-128, 127], [-127, 127], "codes are negated where a folded batch norm's gamma is negative"),
    ("x86", "weight"): ([-128, 127], [-127, 127], "as fbgemm"),
    ("onednn", "weight"): ([-128, 127], [-127, 127], "as fbgemm"),
    ("qnnpack", "weight"): ([-128, 127], [-127, 127], "as fbgemm"),
    ("onednn", "activation"): ([0, 255], [0, 127], "torch assumes VNNI and is wrong without it; isa: vnni is the same"),
    ("qnnpack", "granularity"): ("tensor", "channel", "the engine can, and it is worth 10 dB"),
}
ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")


def ours(engine):
    record = backend(engine)
    readers = [Consumer(node="conv", op=Op.CONV2D)]
    activation = activation_spec(record, Isa.ANY, readers, observer="auto")
    weight = weight_spec(record, Op.CONV2D, granularity=None, axis=0, observer="auto")
    return {
        "activation": [activation.qmin, activation.qmax],
        "weight": [weight.qmin, weight.qmax],
        "granularity": weight.granularity.value,
    }


def test_differences_to_torch_are_exactly_the_documented_ones():
    theirs = ask("torch_defaults")
    found = {
        (engine, role): (theirs[engine][role], our)
        for engine in ENGINES
        for role, our in ours(engine).items()
        if theirs[engine][role] != our
    }
    assert found == {place: (torchs, our) for place, (torchs, our, _) in DIFFERENCES.items()}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ([0, 127, "quint8", True], [0, 63]),  # a range that is reduced already is halved again
        ([-127, 127, "qint8", True], [-64, 63]),  # and is no longer symmetric
        ([None, None, "float8_e4m3fn", False], [0, 15]),  # a dtype it does not know, without a word
        ([None, None, "bool", False], [0, 15]),
    ],
)
def test_torchs_range_helper_still_has_its_traps(given, made):
    assert ask("torch_range_helper", given) == made


def test_our_reduced_range_is_not_halved_again():
    reduced = activation_spec(backend("fbgemm"), Isa.ANY, [Consumer(node="c", op=Op.CONV2D)], observer="auto")
    check_activation(reduced)
    assert (reduced.qmin, reduced.qmax) == int_range(Dtype.UINT8, RangeName.REDUCED) == (0, 127)
    with pytest.raises(ValueError, match=r"0\.\.63"):
        check_activation(Spec(dtype=Dtype.UINT8, qmin=0, qmax=63, reduce_range=True))


def test_expected_engines_are_torchs():
    assert set(host_facts().engines or ()) == set(ask("supported_engines")) - {"none"}
