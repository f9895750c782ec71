"""`make data` in a project folder of its own, with an apt-get that is not there, fails, or gives a package."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "fetch_fashion_mnist.sh"
TOOLS = ("bash", "dirname", "mkdir", "mktemp", "rm", "mv", "ls", "wc", "id", "touch", "cp")


@pytest.fixture
def project(tmp_path):
    """A folder with the script in it, and a `bin` with nothing but the usual tools."""
    (tmp_path / "examples").mkdir()
    shutil.copy(SCRIPT, tmp_path / "examples")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def program(project, name, body):
    file = project / "bin" / name
    file.write_text(f"#!/usr/bin/env bash\n{body}\n".replace("/usr/bin/env bash", shutil.which("bash")))
    file.chmod(0o755)


def fetch(project):
    command = [shutil.which("bash"), str(project / "examples" / SCRIPT.name)]
    environment = {"PATH": str(project / "bin")}
    return subprocess.run(command, env=environment, cwd=project, capture_output=True, text=True, check=False)


def left(project):
    return sorted(path.name for path in (project / ".data").iterdir()) if (project / ".data").exists() else []


def test_without_apt_it_says_so(project):
    done = fetch(project)
    assert done.returncode == 1
    assert "apt-get is missing" in done.stderr
    assert left(project) == []


def test_offline_it_says_so_and_leaves_nothing(project):
    program(project, "apt-get", "echo 'E: Failed to fetch' >&2; exit 100")
    program(project, "dpkg-deb", "exit 1")
    done = fetch(project)
    assert done.returncode == 1
    assert "E: Failed to fetch" in done.stderr
    assert "apt-get cannot download dataset-fashion-mnist" in done.stderr
    assert left(project) == []


def test_the_files_are_there_whole_and_are_fetched_once(project):
    program(project, "apt-get", "echo fetched >&2; touch dataset-fashion-mnist_1_all.deb")
    program(
        project,
        "dpkg-deb",
        'set -e; mkdir -p "$3/usr/share/datasets/fashion-mnist" "$3/usr/share/doc/dataset-fashion-mnist"\n'
        'touch "$3/usr/share/datasets/fashion-mnist/a.gz" "$3/usr/share/doc/dataset-fashion-mnist/copyright"',
    )
    first, second = fetch(project), fetch(project)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stderr == "fetched\n"
    assert second.stderr == ""
    assert left(project) == ["usr"]
    folder = project / ".data" / "usr" / "share" / "datasets" / "fashion-mnist"
    assert sorted(path.name for path in folder.iterdir()) == ["a.gz", "copyright"]
