"""The survival table: what people do to a model x {file stamp, node stamp, reduce_range}, each cell asserted."""

import re
from pathlib import Path

import pytest

from tests.exporters.survival import SURVIVAL, Row, quietly, stamped

PAGE = Path(__file__).parents[2] / "docs" / "stamp.md"


def test_the_sample_has_nodes_of_both_kinds():
    assert set(stamped().values()) == {True, False}


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row.form}-{row.what}", marks=[pytest.mark.slow] * row.slow) for row in SURVIVAL],
)
def test_what_survives(row: Row):
    left = quietly(row.do)
    assert (left.file is not None) is row.file
    assert left.nodes == (stamped() if row.node else {})
    assert left.reduce_range == (stamped() if row.reduce_range else {})


def test_the_page_has_the_same_table():
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| (yes|no) \| (yes|no) \| (yes|no) \| ([^|]*) \|$", PAGE.read_text(), re.M
    )
    words = {True: "yes", False: "no"}
    mine = [(r.form, r.what, words[r.file], words[r.node], words[r.reduce_range]) for r in SURVIVAL]
    assert [tuple(cell.strip("` ") for cell in row[:5]) for row in rows] == mine
    assert all(derived.strip() for *cells, derived in rows if "no" in cells)
