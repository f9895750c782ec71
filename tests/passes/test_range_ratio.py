from qtool.passes.range_ratio import MAX_RATIO, ratio_warnings
from qtool.plan import EdgePlan, NodePlan, Plan
from qtool.types import Dtype, Isa, Op, Spec, Verdict


def plan_of(*inputs, op=Op.CAT):
    spec = Spec(dtype=Dtype.UINT8, qmin=0, qmax=255)
    edges = tuple(EdgePlan(name=name, value=name, spec=spec, group="a") for name in (*inputs, "cat"))
    node = NodePlan(
        name="cat", op=op, target="", verdict=Verdict.INT8, reason="", members=("cat",), inputs=inputs, output="cat"
    )
    return Plan(backends=("qnnpack",), isa=Isa.ANY, nodes=(node,), edges=edges)


def test_case_16_ranges_far_apart_are_told_with_both():
    (message,) = ratio_warnings(plan_of("a", "b"), {"a": (-3.0, 5.0), "b": (-0.01, 0.01)})
    assert message.startswith(
        "'cat' gives 'a' (-3 to 5) and 'b' (-0.01 to 0.01) one scale: the range of 'a' is 400 times that of 'b', "
        "which keeps 0 of 255 steps."
    )
    assert message.endswith("quantize.overrides: [{match: 'cat', dtype: float}]")


def test_case_16_ranges_count_from_zero_and_up_to_the_limit():
    assert ratio_warnings(plan_of("a", "b"), {"a": (63.0, float(MAX_RATIO)), "b": (0.5, 1.0)}) == ()
    assert len(ratio_warnings(plan_of("a", "b"), {"a": (0.0, MAX_RATIO + 1.0), "b": (0.5, 1.0)})) == 1


def test_nothing_is_said_of_zeros_of_what_was_not_seen_or_of_other_ops():
    seen = {"a": (-3.0, 5.0), "b": (0.0, 0.0)}
    assert ratio_warnings(plan_of("a", "b"), seen) == ()
    assert ratio_warnings(plan_of("a", "b"), {}) == ()
    assert ratio_warnings(plan_of("a", "b", op=Op.ADD), {"a": (0.0, 1e6), "b": (0.0, 1.0)}) == ()


def test_of_many_inputs_the_widest_and_the_narrowest_are_named():
    (message,) = ratio_warnings(plan_of("a", "b", "c"), {"a": (0.0, 1.0), "b": (0.0, 1e3), "c": (0.0, 10.0)})
    assert "'b' (0 to 1e+03) and 'a' (0 to 1)" in message
