"""The forms of `qtool inspect`, and two files: what goes where, and what ends with which status."""

import json

import pytest

from tests.cli.process import call, names_in
from tests.readers.sample_files import sample_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.pt2").write_bytes(sample_file())
    (folder / "b.pt2").write_bytes(sample_file(backend="qnnpack", reduced=frozenset()))
    return folder


def test_a_page_besides_what_is_printed(folder, tmp_path):
    done = call(["inspect", folder / "a.pt2", "--json", "--html", tmp_path / "a.html"])
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["report_version"] == 2
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert names_in(tmp_path) == ["a.html"]


def test_a_page_on_standard_output(folder):
    done = call(["inspect", folder / "a.pt2", "--html", "-"])
    assert (done.returncode, done.stdout[:15]) == (0, b"<!doctype html>")


def test_markdown_with_findings_ends_with_1(folder):
    done = call(["inspect", folder / "a.pt2", "--backend", "qnnpack", "--markdown"])
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.decode().startswith("### 🔴 findings: `")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "--markdown"], "--json and --markdown would all go to standard output"),
        (["--markdown", "--html", "-"], "--markdown and --html - would all go to standard output"),
        (["--html", ""], "--html: the name of the file is empty"),
        (["--html", "a.pt2"], "'a.pt2' is read by this command and would be lost"),
        (["--html", "no/such/folder/a.html"], "there is no folder 'no/such/folder'"),
        (["-"], "both files are '-'"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(folder, options, words):
    before = {name: (folder / name).read_bytes() for name in names_in(folder)}
    file = "-" if options == ["-"] else "a.pt2"
    done = call(["inspect", file, *options], cwd=folder)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == before


def test_two_files_that_differ_end_with_1(folder, tmp_path):
    done = call(["inspect", "a.pt2", "b.pt2", "--html", tmp_path / "ab.html"], cwd=folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.decode().startswith("different: a.pt2 and b.pt2: 4 nodes changed")
    assert "input range" in (tmp_path / "ab.html").read_text()


def test_a_file_is_equal_to_itself(folder):
    done = call(["inspect", "a.pt2", "-", "--json"], cwd=folder, input=(folder / "a.pt2").read_bytes())
    document = json.loads(done.stdout)
    assert (done.returncode, document["sameness"], document["is_same_content"]) == (0, "equal", True)
