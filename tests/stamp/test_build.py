import dataclasses

import numpy as np
import pytest

from qtool._version import __version__
from qtool.errors import RangeError
from qtool.stamp.build import build_stamp
from qtool.stamp.digest import parameter_digest
from qtool.types import Isa, Stage
from tests.readers.sample_files import sample_plan, sample_stamp

NOTHING = frozenset()


def by_name(stamp):
    return {node.name: node for node in stamp.nodes}


def build(plan, parameters):
    return build_stamp(
        plan,
        parameters,
        {},
        stage=Stage.PREPARED,
        config_digest="c",
        source_digest="s",
        preprocessing=None,
        inputs=(),
    )


def test_the_stamp_says_what_the_plan_says():
    plan = sample_plan(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"depth"}))
    stamp = sample_stamp(plan)
    assert (stamp.tool_version, stamp.backends, stamp.isa) == (__version__, ("onednn",), Isa.VNNI)
    assert stamp.content_digest == ""
    assert [node.name for node in stamp.nodes] == [node.name for node in plan.nodes]
    depth = by_name(stamp)["depth"]
    assert (depth.backends, depth.reduce_range) == (("onednn",), True)
    assert (depth.depthwise, depth.channel_multiplier) == (True, 1)
    assert (depth.inputs[0].qmin, depth.inputs[0].qmax) == (0, 127)
    assert (depth.weight.edge, depth.weight.axis) == ("depth.weight", 0)


def test_parameters_are_summed_up_and_digested():
    scale, zero_point = np.float32([0.002, 0.001]), np.int32([0, 0])
    stamp = build(sample_plan(), {"stem.weight": (scale, zero_point), "x": (np.float32(0.5), np.int32(7))})
    stem = by_name(stamp)["stem"]
    assert (stem.weight.scale_min, stem.weight.scale_max) == (float(scale[1]), float(scale[0]))
    assert stem.weight.digest == parameter_digest(scale, zero_point)
    assert (stem.inputs[0].scale_min, stem.inputs[0].zero_point_min) == (0.5, 7)


def test_what_has_no_parameters_is_not_calibrated():
    stem = by_name(build(sample_plan(), {}))["stem"]
    assert not stem.inputs[0].is_calibrated
    assert not stem.weight.is_calibrated


def test_an_edge_takes_the_parameters_of_its_group():
    plan = sample_plan()
    edges = tuple(dataclasses.replace(edge, group="shared") for edge in plan.edges)
    stamp = build(dataclasses.replace(plan, edges=edges), {"shared": (np.float32(0.5), np.int32(7))})
    assert by_name(stamp)["depth"].inputs[0].scale_min == 0.5


def test_a_zero_point_outside_the_range_is_refused():
    with pytest.raises(RangeError, match=r"must lie in 0\.\.127"):
        build(sample_plan(), {"x": (np.float32(0.5), np.int32(200))})


def test_full_range_is_required_where_no_proof_says_safe():
    plan = sample_plan(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"depth"}))
    nodes = by_name(sample_stamp(plan, safe=frozenset({"head"})))
    assert {name: node.requires_full_range for name, node in nodes.items()} == {
        "stem": True,  # 0..255 with weights of 100: 255 * 200 = 51000
        "depth": False,  # 0..127
        "act": False,  # float
        "head": False,  # 0..255 with weights of 10: 255 * 20 = 5100
    }
    assert nodes["stem"].saturation.verdict == "can_saturate"
    assert (nodes["stem"].saturation.num_channels, nodes["stem"].saturation.worst_pair_sum) == (4, 51000)
    assert (nodes["head"].saturation.verdict, nodes["head"].saturation.worst_pair_sum) == ("safe", 5100)
    assert nodes["act"].saturation is None


def test_before_convert_nothing_is_proved_so_full_range_is_required():
    nodes = by_name(sample_stamp(sample_plan(reduced=NOTHING), stage=Stage.PREPARED))
    assert nodes["head"].requires_full_range
    assert nodes["head"].saturation is None


def test_with_content_changes_the_digest_alone():
    stamp = sample_stamp(sample_plan())
    assert stamp.with_content("abc") == dataclasses.replace(stamp, content_digest="abc")
