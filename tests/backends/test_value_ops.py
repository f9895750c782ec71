"""The ops without weight, run on every engine: at most one step off, but for qnnpack's known faults."""

import pytest

from qtool.backends.record import Support
from qtool.backends.registry import backend
from qtool.types import Op
from tests.backends.engines.client import ask

# Variants in which qnnpack's own kernels are wrong, with the rule that says so.
QNNPACK_FAULTS = {
    "max_pool, dilation 2": Op.MAX_POOL,
    "avg_pool, padding not counted": Op.AVG_POOL,
    "hardtanh, channels_last": Op.ACTIVATION,
}


def is_fault(name):
    return name in QNNPACK_FAULTS or name.removesuffix(", channels_last") in QNNPACK_FAULTS


@pytest.mark.parametrize("engine", ["fbgemm", "x86", "onednn"])
def test_at_most_one_step(engine):
    steps = ask("value_ops", engine)
    assert {name: largest for name, largest in steps.items() if largest > 1} == {}
    assert len(steps) == 42


def test_qnnpack_is_wrong_exactly_where_the_catalog_says():
    """A fault that upstream mends shows here, and its rule can go."""
    steps = ask("value_ops", "qnnpack")
    assert {name for name, largest in steps.items() if largest > 1} == set(filter(is_fault, steps))
    conditional = {rule.op for rule in backend("qnnpack").rules if rule.support is Support.WRONG_UNLESS}
    assert conditional == set(QNNPACK_FAULTS.values())


@pytest.mark.parametrize("engine", ["fbgemm", "x86", "onednn", "qnnpack"])
def test_case_12_prelu_is_wrong_where_its_slopes_have_no_code_for_one(engine):
    """So it stays float: what an observer finds for a slope of 0.25 is a scale of 0.25 / 255."""
    assert ask("prelu_steps", [engine, 0.25, 255]) > 10
    assert ask("prelu_steps", [engine, 0.25, 25]) <= 1
