"""The examples run as they stand, and end with a table that is worth showing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qtool.lowering.engine_switch import available_engines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(command, folder):
    """Run an example with `qtool` on the PATH, installed or not, and return what it prints."""
    program = folder / "qtool"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qtool "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measures(row):
    """Return a row's accuracy, agreement and SQNR."""
    return [float(number) for number in re.findall(r"\d+\.\d+", row)[:3]]


def test_the_script_ends_with_a_row_for_each_backend(tmp_path):
    lines = run([sys.executable, str(ROOT / "examples" / "lite0.py")], tmp_path).splitlines()
    rows = {line.split()[0]: measures(line) for line in lines[-3:]}
    assert list(rows) == ["float", "fbgemm", "qnnpack"]
    for backend, least in (("fbgemm", 16.5), ("qnnpack", 18.0)):
        accuracy, agreement, sqnr = rows[backend]
        assert accuracy >= 0.8
        assert agreement >= 0.9
        assert sqnr >= least


def test_the_shell_pipeline_measures_the_same(tmp_path):
    printed = run(["bash", str(ROOT / "examples" / "lite0.sh")], tmp_path)
    assert "does not fit fbgemm, isa no-vnni" in printed
    rows = {line.split()[1]: measures(line) for line in printed.splitlines() if line.startswith("converted, ")}
    assert rows["fbgemm"][2] >= 16.5
    assert rows["qnnpack"][2] >= 18.0


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    """What the CNN's example prints; it leaves its float weights in out/."""
    return run([sys.executable, str(ROOT / "examples" / "fashion_mnist.py")], tmp_path_factory.mktemp("fashion"))


def test_the_trained_cnn_keeps_its_accuracy_on_every_engine(fashion):
    heading, *rows = fashion.partition("\n\n")[2].splitlines()
    assert heading.split() == ["float", "PTQ", "QAT"]
    found = {row.split()[0]: [float(number) for number in row.split()[1:]] for row in rows}
    assert set(found) >= set(available_engines())
    for in_float, _, trained in found.values():
        assert trained >= in_float - 1


@pytest.mark.usefixtures("fashion")
def test_the_cnn_goes_through_a_pipe(tmp_path):
    command = ["bash", str(ROOT / "examples" / "pipeline.sh")]
    if not (ROOT / ".data").exists():
        with pytest.raises(AssertionError, match="run 'make data'"):
            run(command, tmp_path)
        return
    printed = run(command, tmp_path)
    assert "fits fbgemm, isa any" in printed
    rows = {line.split()[0]: measures(line) for line in printed.splitlines() if line.startswith(("float", "converted"))}
    assert rows["converted,"][0] >= rows["float"][0] - 0.01


def test_the_own_loop_trains_the_digits(tmp_path):
    lines = run([sys.executable, str(ROOT / "examples" / "own_loop.py")], tmp_path).splitlines()
    in_float, trained = (float(re.search(r"([\d.]+) %", line)[1]) for line in lines)
    assert trained >= in_float - 2
