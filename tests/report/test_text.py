import dataclasses
import re

import pytest
from rich.cells import cell_len

from qtool.inspection.inspect import inspect_file
from qtool.report.text import render_text
from qtool.stamp.schema import STAMP_ENTRY
from qtool.types import Isa, Stage
from tests.readers.sample_files import file_bytes, sample_file, sample_plan, sample_stamp, zip_bytes
from tests.report.hostile_names import NAMES, hostile_report
from tests.report.sample_reports import sample_report

NOTHING = frozenset()
REPORTS = {
    "ok": inspect_file(sample_file()),
    "other_backend": inspect_file(sample_file(), backend="qnnpack"),
    "can_saturate": inspect_file(
        sample_file(backend="onednn", isa=Isa.VNNI, reduced=NOTHING, safe=["head"]), isa="no-vnni"
    ),
    "mixed": inspect_file(sample_file(backend="onednn", isa=Isa.VNNI, reduced=frozenset({"stem"}))),
    "unknown": inspect_file(zip_bytes({"data.pkl": b"\x80\x02}.", "data/0": b""})),
    "not_calibrated": inspect_file(
        file_bytes(sample_stamp(sample_plan(), stage=Stage.PREPARED, calibrated=False), sample_plan())
    ),
    "unsafe": inspect_file(file_bytes(None, None, changes={"data/sample_inputs/model.pt": b"PK"})),
}
REPORTS["by_hand"] = sample_report()
REPORTS["full_range"] = inspect_file(sample_file(backend="qnnpack", reduced=NOTHING))
ESCAPE = "\x1b"


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_as_text(name, golden):
    # The version changes with each release, and the size of the file with it.
    text = re.sub(r"by qtool \S+", "by qtool VERSION", render_text(REPORTS[name], width=170))
    golden(f"{name}.txt", re.sub(r"(file +\w+, ).*", r"\1SIZE", text))


def test_the_verbose_report_on_a_narrow_terminal(golden):
    text = re.sub(r"by qtool \S+", "by qtool VERSION", render_text(REPORTS["other_backend"], verbose=True, width=60))
    golden("verbose_narrow.txt", re.sub(r"(file +\w+, ).*", r"\1SIZE", text))


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [1, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(name, width, verbose):
    text = render_text(REPORTS[name], width=width, verbose=verbose)
    assert max(cell_len(line) for line in text.split("\n")) <= max(width, 20)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_first_line_is_the_outcome():
    assert render_text(REPORTS["ok"]).startswith("ok: data fits fbgemm, isa any\n")
    assert render_text(REPORTS["unknown"]).startswith("unknown: data does not say what it was made for")
    assert render_text(REPORTS["can_saturate"]).startswith("findings: data does not fit onednn, isa no-vnni")


def test_colour_is_there_when_asked_for_and_only_then():
    plain = render_text(REPORTS["other_backend"], width=170)
    coloured = render_text(REPORTS["other_backend"], width=170, color=True)
    assert ESCAPE not in plain
    assert ESCAPE in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.split("\n")] == plain.split("\n")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"COLUMNS": "10"}, {"TERM": "dumb"}])
def test_the_environment_is_the_callers_business(variables, monkeypatch):
    expected = [render_text(REPORTS["ok"], color=color) for color in (False, True)]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [render_text(REPORTS["ok"], color=color) for color in (False, True)] == expected


def test_text_from_strangers_is_harmless():
    evil = f"[bold red]:smile:{ESCAPE}]0;title\x07\r\n\u202e[/]"
    plan = sample_plan()
    nodes = tuple(
        dataclasses.replace(node, name=f"{index}{evil}", reason=evil) for index, node in enumerate(plan.nodes)
    )
    plan = dataclasses.replace(plan, nodes=nodes, backends=(evil,))
    stamp = dataclasses.replace(sample_stamp(plan, stage=Stage.PREPARED), tool_version=evil, preprocessing={evil: evil})
    report = inspect_file(file_bytes(stamp, plan), backend="fbgemm")
    text = render_text(dataclasses.replace(report, name=evil), verbose=True, width=500)
    assert all(line.isprintable() for line in text.split("\n"))
    assert r"0[bold red]:smile:\x1b]0;title\x07\r\n\u202e[/]" in text


def test_the_words_of_a_hostile_stamp_are_harmless_too():
    text = render_text(
        inspect_file(file_bytes(None, None, changes={STAMP_ENTRY: b'{"\\u001b[2J": 1, "format_version": 1}'}))
    )
    assert all(line.isprintable() for line in text.split("\n"))
    assert "QT203" in text


def many_nodes(count: int):
    plan = sample_plan(backend="qnnpack", reduced=NOTHING)
    stem = plan.nodes[0]
    nodes = tuple(dataclasses.replace(stem, name=f"layer.{index}") for index in range(count))
    plan = dataclasses.replace(plan, nodes=nodes)
    return inspect_file(file_bytes(sample_stamp(plan, stage=Stage.PREPARED), plan), backend="fbgemm")


@pytest.mark.parametrize(
    ("backend", "stage", "words"),
    [
        ("onednn", Stage.CONVERTED, "4 channels can leave int16, worst pair sum 51000"),
        ("onednn", Stage.PREPARED, "full range, and the weights are not known to be safe"),
        ("qnnpack", Stage.CONVERTED, "channels can leave"),
        ("unheard_of", Stage.CONVERTED, "4 channels can leave int16, worst pair sum 51000"),
    ],
)
def test_each_node_says_what_is_proved_of_it_where_that_matters(backend, stage, words):
    plan = sample_plan(backend=backend, isa=Isa.VNNI, reduced=NOTHING)
    text = render_text(inspect_file(file_bytes(sample_stamp(plan, stage=stage), plan)), verbose=True, width=400)
    assert (words in text) == (backend != "qnnpack")
    assert ("pair sum" in text) == (backend != "qnnpack" and stage is Stage.CONVERTED)


def test_long_lists_are_cut_and_say_so_and_verbose_lists_all():
    short = render_text(many_nodes(100), width=100)
    assert len(short.split("\n")) < 40
    assert "and 94 more nodes" in short
    assert "layer.99" not in short
    assert "layer.99" in render_text(many_nodes(100), width=100, verbose=True)


def test_wide_names_are_measured_in_cells():
    plan = sample_plan()
    nodes = tuple(dataclasses.replace(node, name="層" * 30 + node.name) for node in plan.nodes)
    plan = dataclasses.replace(plan, nodes=nodes)
    text = render_text(inspect_file(file_bytes(sample_stamp(plan), plan)), verbose=True, width=90)
    assert max(cell_len(line) for line in text.split("\n")) <= 90


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [40, 300])
def test_names_that_would_act_are_printed(name, width):
    text = render_text(hostile_report(name), verbose=True, width=width)
    assert all(line.isprintable() and cell_len(line) <= width for line in text.split("\n"))


def test_a_narrow_terminal(golden):
    golden("narrow_40.txt", render_text(sample_report(), width=40))
