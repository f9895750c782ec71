import dataclasses

import pytest
from rich.cells import cell_len

from qtool.inspection.compare import compared
from qtool.inspection.stored_numbers import StoredNumbers
from qtool.report.comparison_text import render_comparison
from tests.report.hostile_names import NAMES, hostile_report
from tests.report.sample_reports import large_report, quantized_node, sample_nodes, sample_report


def sample_comparison():
    nodes = sample_nodes()
    after = sample_report(
        (quantized_node(0, name="stem", qmax=127, worst=30000), *nodes[1:4], quantized_node(9)),
        name="models/after.pt2",
        findings=(),
    )
    return compared(sample_report(), after, numbers=StoredNumbers(num_same=3, different=(("act", "weight values"),)))


@pytest.mark.parametrize("width", [40, 100])
def test_a_comparison_as_text(width, golden):
    golden(f"comparison_{width}.txt", render_comparison(sample_comparison(), width=width))


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(width, verbose):
    text = render_comparison(sample_comparison(), width=width, verbose=verbose)
    assert max(cell_len(line) for line in text.split("\n")) <= max(width, 20)
    assert "\x1b" not in text


@pytest.mark.parametrize("name", NAMES)
def test_text_from_strangers_is_harmless(name):
    for comparison in (
        compared(hostile_report(name), sample_report()),
        compared(sample_report(), hostile_report(name)),
    ):
        assert all(line.isprintable() for line in render_comparison(comparison, verbose=True).split("\n"))


def test_long_lists_are_cut_and_verbose_lists_all():
    comparison = compared(sample_report(findings=()), dataclasses.replace(large_report(100), findings=()))
    short = render_comparison(comparison)
    assert "and 80 more; --verbose lists them" in short
    assert "layers.99." not in short
    assert "layers.99." in render_comparison(comparison, verbose=True)


def test_equal_files_are_said_to_be_equal_and_what_was_not_compared_is_said():
    report = sample_report(not_understood=())
    equal = render_comparison(compared(report, report, numbers=StoredNumbers(num_same=3)))
    assert equal == "equal: models/int8.pt2 and models/int8.pt2: 7 nodes and all stored numbers are the same\n"
    unknown = render_comparison(compared(report, report))
    assert unknown.startswith("unknown: models/int8.pt2 and models/int8.pt2: nothing differs in what could be compared")
    assert "no tensor of one is known in the other" in unknown
