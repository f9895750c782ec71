"""What commands print: tables, sizes, summaries, and how wide and colourful they may be."""

import dataclasses
import json
import os

import pytest

from qtool.cli.streams import Stdout
from qtool.cli.summary import json_text, megabytes, summary, summary_lines
from qtool.cli.table import text_table
from qtool.cli.terminal import UNLIMITED_WIDTH, USUAL_WIDTH, has_color, width_of
from qtool.plan import NodePlan, Plan, TargetCost
from qtool.types import Isa, Op, Verdict
from tests.cli.process import open_terminal


def node(name, verdict, reason):
    return NodePlan(name=name, op=Op.LINEAR, target="aten.linear", verdict=verdict, reason=reason, members=(name,))


PLAN = Plan(
    backends=("fbgemm",),
    isa=Isa.ANY,
    nodes=(
        node("a", Verdict.INT8, "fits"),
        node("b", Verdict.FLOAT, "softmax has no int8 kernel"),
        node("c", Verdict.FLOAT, "softmax has no int8 kernel"),
    ),
)


def test_table_is_aligned_and_its_numbers_end_in_line():
    table = text_table(("node", "steps", "what"), [("conv", "1", "x"), ("classifier", "10", "")], right={"steps"})
    assert table.splitlines() == [
        "node        steps  what",
        "conv            1  x",
        "classifier     10",
    ]


def test_table_shows_names_of_strangers_escaped():
    assert "conv\\x1b[2J" in text_table(("node",), [("conv\x1b[2J",)])


def test_table_without_rows_is_its_header():
    assert text_table(("node", "steps"), []) == "node  steps"


@pytest.mark.parametrize(
    ("num_bytes", "words"), [(0, "0 bytes"), (999, "999 bytes"), (20_734, "20.7 kB"), (18_870_000, "18.87 MB")]
)
def test_sizes(num_bytes, words):
    assert megabytes(num_bytes) == words


def test_summary_counts_float_nodes_by_reason():
    facts = summary(PLAN)
    assert facts == {
        "backend": "fbgemm",
        "isa": "any",
        "num_nodes": 3,
        "num_int8": 1,
        "num_float": 2,
        "float_islands": {"softmax has no int8 kernel": 2},
        "costs": [],
    }
    assert summary_lines("-", 4_200_000, facts).splitlines() == [
        "standard output: 4.20 MB, 1 of 3 nodes int8 for fbgemm (isa any)",
        "  float: 2 x softmax has no int8 kernel",
    ]


def test_json_has_a_version_and_no_nan():
    assert json.loads(json_text({"a": 1})) == {"schema_version": 1, "a": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("inf")})


def on_terminal(descriptor):
    return Stdout(descriptor=descriptor, stream=None, encoding="utf-8", is_terminal=True)


IN_A_FILE = Stdout(descriptor=1, stream=None, encoding="utf-8", is_terminal=False)


@pytest.fixture
def plain_environment(monkeypatch):
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_a_file_gets_whole_lines_without_colour(plain_environment):
    plain_environment.setenv("COLUMNS", "40")
    assert width_of(IN_A_FILE) == UNLIMITED_WIDTH
    assert not has_color(IN_A_FILE)


def test_a_terminal_gets_its_own_width_and_colour(plain_environment):
    ours, theirs = open_terminal()
    stdout = on_terminal(theirs)
    assert width_of(stdout) == USUAL_WIDTH  # a new pseudo-terminal says 0
    plain_environment.setenv("COLUMNS", "132")
    assert width_of(stdout) == 132
    plain_environment.setenv("COLUMNS", "9" * 5000)
    assert width_of(stdout) == UNLIMITED_WIDTH
    plain_environment.setenv("COLUMNS", "-5")
    assert width_of(stdout) == USUAL_WIDTH
    assert has_color(stdout)
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_switched_off(plain_environment, name, value):
    plain_environment.setenv(name, value)
    assert not has_color(on_terminal(1))


def test_summary_says_what_several_backends_cost():
    cost = TargetCost(what="7 bits instead of 8 for the input", nodes=("a",), backends=("fbgemm", "x86"))
    facts = summary(dataclasses.replace(PLAN, backends=("fbgemm", "x86", "qnnpack"), costs=(cost,)))
    lines = summary_lines("-", 4_200_000, facts).splitlines()
    assert lines[0].endswith("1 of 3 nodes int8 for fbgemm,x86,qnnpack (isa any)")
    assert lines[-1] == "  cost of fbgemm, x86: 7 bits instead of 8 for the input at 1 nodes"
