"""A stamp made of marks: what they say, and the worst where they say nothing."""

import dataclasses

from qtool.readers.marks import FileMark, Marks, NodeMark, marks_of
from qtool.readers.recovered import recovered_stamp
from qtool.types import Isa, Op, Stage
from tests.readers.sample_files import sample_plan, sample_stamp

BARE = NodeMark(name="stem", backends=("fbgemm",), reduce_range=False)


def test_marks_of_a_stamp_give_back_its_target_and_ranges():
    stamp = sample_stamp(sample_plan(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"stem"})))
    again = recovered_stamp(marks_of(stamp))
    assert (again.stage, again.backends, again.isa) == (stamp.stage, stamp.backends, stamp.isa)
    for mine, its in zip(stamp.int8_nodes(), again.nodes, strict=True):
        same = ("name", "op", "backends", "reduce_range", "requires_full_range", "depthwise", "channel_multiplier")
        assert [getattr(mine, name) for name in same] == [getattr(its, name) for name in same]
        assert (mine.inputs[0].qmin, mine.inputs[0].qmax) == (its.inputs[0].qmin, its.inputs[0].qmax)
        assert its.saturation == (mine.saturation if mine.uses_full_range else None)


def test_what_no_mark_says_counts_as_the_worst():
    conv = dataclasses.replace(BARE, op=Op.CONV2D)
    stamp = recovered_stamp(Marks((), (conv,)))
    (node,) = stamp.nodes
    assert (stamp.stage, stamp.isa) == (Stage.CONVERTED, Isa.ANY)
    assert (node.inputs[0].qmin, node.inputs[0].qmax) == (0, 255)
    assert (node.depthwise, node.channel_multiplier, node.requires_full_range) == (True, None, True)


def test_models_for_several_cpus_are_for_any():
    files = tuple(FileMark(stage=Stage.EXPORTED, backends=("x86",), isa=isa, stamp="0") for isa in (Isa.VNNI, Isa.ANY))
    stamp = recovered_stamp(Marks(files, (BARE,)))
    assert (stamp.isa, stamp.backends) == (Isa.ANY, ("x86", "fbgemm"))


def test_a_name_that_two_nodes_have_gets_a_number():
    other = dataclasses.replace(BARE, reduce_range=True)
    stamp = recovered_stamp(Marks((), (BARE, other)))
    assert [(node.name, node.reduce_range) for node in stamp.nodes] == [("stem", False), ("stem (2)", True)]


def test_nothing_gives_nothing():
    assert recovered_stamp(Marks()) is None
