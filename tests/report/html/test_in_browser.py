"""The page in headless Chromium, from a file: it sorts and filters, and nothing is complained of."""

import re
import shutil
import subprocess
from html import unescape

import pytest

from qtool.report.html.page import report_page
from tests.report.hostile_names import NAMES, hostile_report
from tests.report.sample_reports import large_report, sample_report

pytestmark = pytest.mark.slow

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def opened(folder, page, address=""):
    """Return the document as the browser has it after the script ran, and what it said on its console."""
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    assert program is not None, f"this test needs a browser: one of {', '.join(CHROMIUM)}"
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--enable-logging=stderr",
        f"file://{file}{address}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.split("\n") if "CONSOLE" in line]


def rows_of(document):
    """Return (name, hidden) of each row of the table of nodes."""
    table = document[document.index('id="nodes"') :]
    return [
        (unescape(name), hidden != "")
        for hidden, name in re.findall(
            r'<tbody( hidden="")?><tr><td data-v="\d+">.*?<summary>(.*?)</summary>', table, flags=re.DOTALL
        )
    ]


@pytest.fixture(scope="module")
def by_size(tmp_path_factory):
    return opened(tmp_path_factory.mktemp("page"), report_page(sample_report()), "#sort=-size")


def test_it_sorts_by_numbers_and_leaves_what_has_none_at_the_end(by_size):
    document, console = by_size
    assert console == []
    assert [name for name, _ in rows_of(document)] == [
        "classifier", "features.2.0", "features.1.0", "lstm", "stem", "act", "head.softmax",
    ]  # fmt: skip
    assert 'aria-sort="descending"' in document


def test_its_controls_are_there(by_size):
    document, _ = by_size
    assert re.search(r'<p id="controls">', document)
    assert document.count('<button type="button">') == 10
    assert "7 of 7" in document


def test_it_sorts_by_names_and_filters(tmp_path):
    document, console = opened(tmp_path, report_page(sample_report()), "#sort=node&filter=conv2d%20int8")
    assert console == []
    assert rows_of(document) == [
        ("act", True), ("classifier", True), ("features.1.0", False), ("features.2.0", True), ("head.softmax", True),
        ("lstm", True), ("stem", False),
    ]  # fmt: skip
    assert "2 of 7" in document


def test_names_that_are_scripts_do_not_run(tmp_path):
    text = "".join(NAMES[:3])
    document, console = opened(tmp_path, report_page(hostile_report(text)))
    assert console == []
    assert document.count("<script>") == 1
    assert "<title>owned" not in document
    assert "<h1>big" not in document


def test_a_large_model_is_sorted_at_once(tmp_path):
    page = report_page(large_report(2000))
    assert len(page.encode()) < 5_000_000
    document, console = opened(tmp_path, page, "#sort=-number")
    assert console == []
    names = [name for name, _ in rows_of(document)]
    assert (len(names), names[0], names[-1]) == (
        2000,
        "model.layers.1999.attention.q_proj",
        "model.layers.0.attention.q_proj",
    )
