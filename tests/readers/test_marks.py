"""Marks: any name comes back, the text is what every carrier takes, and no other text is taken for one."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.readers.marks import FileMark, Marks, NodeMark, collect, decode, encode, marks_of
from qtool.types import Isa, Op, Stage, Verdict
from tests.readers.sample_files import sample_plan, sample_stamp

NODE = NodeMark(name="conv1", backends=("fbgemm",), reduce_range=True, op=Op.CONV2D, isa=Isa.ANY, qmin=0, qmax=127)
FILE = FileMark(stage=Stage.EXPORTED, backends=("fbgemm",), isa=Isa.NO_VNNI, stamp="0" * 64)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


BACKEND = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=","))


@given(TEXT, st.lists(BACKEND, min_size=1, max_size=3), st.booleans(), st.none() | st.integers(-128, 255))
def test_every_name_comes_back(name, backends, reduce_range, qmin):
    mark = NodeMark(name=name, backends=tuple(backends), reduce_range=reduce_range, qmin=qmin)
    text = encode(mark)
    assert decode(text) == mark
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set("\"'\\`{}$")


@pytest.mark.parametrize("mark", [NODE, FILE])
def test_both_kinds_come_back(mark):
    assert decode(encode(mark)) == mark


def test_the_words_are_for_people_too():
    assert encode(dataclasses.replace(NODE, name='a "b"')) == (
        "qtool 1 node name=a%20%22b%22 op=conv2d backends=fbgemm isa=any reduce_range=true qmin=0 qmax=127"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expected x > 0",
        f"{encode(NODE)} ",
        f"a {encode(NODE)}",
        encode(NODE).replace("qtool 1", "qtool 2"),
        encode(NODE).replace("reduce_range=true", "reduce_range=yes"),
        encode(NODE).replace("op=conv2d", "op=conv9d"),
        encode(NODE).replace("qmax=127", "qmax=x"),
        encode(NODE).replace("name=conv1 ", ""),
        encode(NODE).replace("name=conv1", "name=%ff"),
        encode(FILE).replace("stage=exported", "stage=done"),
    ],
)
def test_other_texts_are_no_marks(text):
    assert decode(text) is None


def test_what_is_found_twice_is_listed_once():
    other = dataclasses.replace(NODE, name="conv2")
    assert collect(map(encode, (NODE, FILE, other, NODE, FILE))) == Marks((FILE,), (NODE, other))
    assert not collect(["nothing"])


def test_a_stamp_gives_one_mark_of_the_file_and_one_of_each_int8_node():
    stamp = sample_stamp(sample_plan())
    marks = marks_of(stamp)
    assert [mark.name for mark in marks.nodes] == [n.name for n in stamp.nodes if n.verdict is Verdict.INT8]
    assert marks.files[0].stamp == marks_of(stamp.with_content("f" * 64)).files[0].stamp
