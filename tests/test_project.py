"""The project itself: versions, Makefile, and what its files may not say."""

import os
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from qtool._version import __version__

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = ["setup", "data", "demo", "lint", "type", "test", "bench", "fuzz", "accuracy", "zoo", "check"]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def distribution(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("place", ["work", "root"])
def test_no_file_names_a_folder_of_someones_machine(place):
    pattern = re.compile(rf"(?<![\w.<>*-])/{place}/")
    found = [f"{file.name}:{n}" for file in tracked_files() for n in lines_with(file, pattern)]
    assert not found


def test_no_file_names_a_folder_outside_the_project():
    pattern = re.compile("share" + r"d/(?!object)")
    found = [f"{file.name}:{n}" for file in tracked_files() for n in lines_with(file, pattern)]
    assert not found


def lines_with(file: Path, pattern: re.Pattern[str]) -> list[int]:
    lines = file.read_bytes().decode("utf-8", errors="replace").splitlines()
    return [number for number, line in enumerate(lines, 1) if pattern.search(line)]


def test_the_version_is_stated_once():
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    stating = [
        f for f in (ROOT / "qtool").rglob("*.py") if re.search(rf"[\"']{re.escape(__version__)}[\"']", f.read_text())
    ]
    assert [file.name for file in stating] == ["_version.py"]


def test_the_changelog_speaks_of_this_version():
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_pin_is_exact_and_there_is_one_for_each_dependency():
    assert not [pin for pin in pins() if not re.fullmatch(r"[\w.-]+==[\w.]+(; platform_machine == \"\w+\")?", pin)]
    keys = [re.sub("==[^;]*", "", pin, count=1) for pin in pins()]  # the name, and the platform where one is given
    assert len(keys) == len(set(keys))
    project = PYPROJECT["project"]
    wanted = chain(project["dependencies"], *project["optional-dependencies"].values())
    assert {distribution(r) for r in wanted} <= {distribution(pin) for pin in pins()}


def make(*arguments: str) -> str:
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=outside, capture_output=True, text=True, check=True
    ).stdout


def test_make_lists_every_target():
    assert [line.split()[1] for line in make().splitlines()] == ["help", *TARGETS]


def test_an_environment_that_exists_is_used_as_it_is():
    shown = make("--dry-run", "check", "PYTHON=/an/environment/bin/python")
    assert "/an/environment/bin/python -m pytest" in shown
    assert "venv" not in shown


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    assert not [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
