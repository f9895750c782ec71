from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from qtool.config.paths import form_of_package_path, resolve_path, without_folders
from qtool.errors import EXIT_MISSING, MissingDependencyError, UsageError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import would fail, a namespace package in two places, and a single module."""
    for file in ("weights_of_mine/__init__.py", "one/spread/a.txt", "two/spread/b.txt", "single_file.py"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('imported')", "utf-8")
    for folder in (tmp_path, tmp_path / "one", tmp_path / "two"):
        monkeypatch.syspath_prepend(folder)
    return tmp_path


def test_relative_and_absolute():
    assert resolve_path("w.pth", Path("/base")) == Path("/base/w.pth")
    assert resolve_path("../w.pth", Path("/base/x")) == Path("/base/x/../w.pth")
    assert resolve_path("/data/w.pth", Path("/base")) == Path("/data/w.pth")


def test_a_package_is_found_and_not_imported(package):
    assert resolve_path("package:weights_of_mine/w.pth", Path("/base")) == package / "weights_of_mine" / "w.pth"
    assert resolve_path("package:weights_of_mine", Path("/base")) == package / "weights_of_mine"
    assert "weights_of_mine" not in sys.modules


def test_a_package_of_several_folders_gives_the_one_that_has_the_file(package):
    assert resolve_path("package:spread/a.txt", Path()) == package / "one" / "spread" / "a.txt"
    assert resolve_path("package:spread/b.txt", Path()) == package / "two" / "spread" / "b.txt"
    assert resolve_path("package:spread/none.txt", Path()).name == "none.txt"


@pytest.mark.parametrize("name", ["not_installed_anywhere", "without_spec"])
def test_a_package_that_is_not_installed(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "without_spec", ModuleType("without_spec"))
    with pytest.raises(
        MissingDependencyError, match=f"'{name}' of the path 'package:{name}/w.pth' is not installed"
    ) as caught:
        resolve_path(f"package:{name}/w.pth", Path())
    assert caught.value.exit_code == EXIT_MISSING


@pytest.mark.usefixtures("package")
def test_a_single_module_has_no_folder():
    with pytest.raises(UsageError, match="'single_file' is a single module"):
        resolve_path("package:single_file/w.pth", Path())


@pytest.mark.parametrize(
    "text",
    ["package:", "package:/w", "package:a.b/w", "package:a-b/w", "package:a/../w", "package:a//w", "package:../a"],
)
def test_other_forms_are_refused(text):
    assert form_of_package_path(text)
    with pytest.raises(UsageError, match="package:NAME/path/inside"):
        resolve_path(text, Path())


def test_only_paths_lose_their_folders():
    tree = {"match": "/x/y", "folder": "a/b", "checkpoint": "/x/y.pth", "kwargs": {"a": ["/x/z", 1, None, "C:/w/v"]}}
    assert without_folders(tree) == {
        "match": "/x/y",
        "folder": "a/b",
        "checkpoint": "y.pth",
        "kwargs": {"a": ["z", 1, None, "v"]},
    }
