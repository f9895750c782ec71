import dataclasses

import pytest

from qtool.backends.record import Backend, OpRule, Saturates, Support
from qtool.errors import RangeError
from qtool.types import MAC_OPS, Granularity, Op

PER_CHANNEL = (Granularity.CHANNEL,)


def rule(op=Op.ADD, support=Support.EQUAL, **more):
    return OpRule(op=op, support=support, source="https://example.org", **more)


def all_rules():
    return tuple(rule(op, granularities=PER_CHANNEL if op in MAC_OPS else ()) for op in Op)


def toy(rules):
    return Backend(name="toy", title="", engine=None, runtime="toy", rules=rules, source="https://example.org")


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule().op = Op.MUL


def test_records_take_keywords_only():
    with pytest.raises(TypeError, match="positional"):
        OpRule(Op.ADD, Support.EQUAL, source="x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"support": Support.WRONG_UNLESS}, "exactly the 'wrong_unless' rules state one"),
        ({"unless": "the moon is full"}, "exactly the 'wrong_unless' rules state one"),
        ({"op": Op.LINEAR}, "exactly ops with a weight have some"),
        ({"granularities": PER_CHANNEL}, "exactly ops with a weight have some"),
        ({"op": Op.LINEAR, "support": Support.UNSUPPORTED, "granularities": PER_CHANNEL}, "exactly ops with a weight"),
        (
            {"op": Op.CONV2D, "granularities": PER_CHANNEL, "saturates": Saturates.WITHOUT_VNNI},
            "a kernel that saturates is 'wrong_unless'",
        ),
        (
            {"op": Op.CONV2D, "granularities": PER_CHANNEL, "depthwise_saturates": Saturates.ALWAYS},
            "a kernel that saturates is 'wrong_unless'",
        ),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(RangeError, match=message):
        rule(**fields)


def test_every_op_needs_a_rule():
    with pytest.raises(RangeError, match=r"'toy': no rule for \['layout'\]"):
        toy(tuple(each for each in all_rules() if each.op is not Op.LAYOUT))


def test_two_rules_for_an_op_are_refused():
    with pytest.raises(RangeError, match=r"several for \['add'\]"):
        toy((*all_rules(), rule(Op.ADD)))


def test_rule_finds_by_op():
    assert toy(all_rules()).rule(Op.MUL).op is Op.MUL


def test_an_unknown_op_names_the_known_ones():
    with pytest.raises(RangeError, match=r"'conv4d' is not an op of backend 'toy'; did you mean 'conv\dd'\?.*linear"):
        toy(all_rules()).rule("conv4d")
