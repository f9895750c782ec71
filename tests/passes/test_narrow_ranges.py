import pytest

from qtool.passes.narrow_ranges import narrow_warnings
from qtool.plan import EdgePlan, Plan
from qtool.types import Dtype, FixedParameters, Isa, Spec

SPEC = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255)


def plan_of(*names, spec=SPEC, group=None):
    edges = tuple(EdgePlan(name=name, value=name, spec=spec, group=group or name) for name in names)
    return Plan(backends=("qnnpack",), isa=Isa.ANY, nodes=(), edges=edges)


def test_case_22_an_interval_on_fewer_than_4_codes_is_told_with_the_node():
    (message,) = narrow_warnings(plan_of("x", "y"), {"x": (1000.0, 1001.0), "y": (-1.0, 1.0)})
    assert message.startswith("'x' saw values from 1000 to 1001 alone, which lie on 1 of 256 codes")


@pytest.mark.parametrize(("low", "told"), [(252.0, False), (253.0, True), (255.0, True)])
def test_case_22_the_limit_is_4_codes(low, told):
    assert bool(narrow_warnings(plan_of("x"), {"x": (low, 255.0)})) is told


def test_case_24_zeros_and_what_is_too_small_are_told_with_the_floor():
    zeros, small = narrow_warnings(plan_of("x", "y"), {"x": (0.0, 0.0), "y": (-1e-30, 1e-30)})
    assert zeros.startswith("'x' saw nothing but zeros: its scale is the smallest there is, 1.08e-19")
    assert small.startswith("'y' saw values from -1e-30 to 1e-30 alone, too small for the smallest scale")


def test_edges_with_one_scale_are_one_case():
    assert narrow_warnings(plan_of("a", "b", group="a"), {"a": (0.0, 0.0), "b": (-1.0, 1.0)}) == ()
    assert len(narrow_warnings(plan_of("a", "b", group="a"), {"a": (0.0, 0.0), "b": (0.0, 0.0)})) == 1


def test_nothing_is_said_of_what_was_not_seen_or_is_fixed():
    assert narrow_warnings(plan_of("x"), {}) == ()
    fixed = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255, fixed=FixedParameters(scale=1 / 256, zero_point=0))
    assert narrow_warnings(plan_of("x", spec=fixed), {"x": (0.5, 0.5)}) == ()
