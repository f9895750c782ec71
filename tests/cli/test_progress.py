"""Progress goes to stderr: few lines to a file, a bar to a terminal."""

import os
import sys

from qtool.cli import progress as module
from qtool.cli.progress import progress
from tests.cli.process import call, environment, open_terminal


def test_without_a_terminal_the_last_line_is_enough(capsys):
    with progress("calibrate") as on_batch:
        for done in range(1, 1001):
            on_batch(done, 1000)
    captured = capsys.readouterr()
    assert captured.err == "calibrate: 1000 of 1000 samples\n"
    assert captured.out == ""


def test_a_long_run_says_now_and_then_where_it_is(capsys, monkeypatch):
    now = iter(range(0, 1000, 4))  # a batch takes four seconds
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    with progress("evaluate") as on_batch:
        for done in range(1, 9):
            on_batch(done, 8)
    seen = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert seen[-1] == "8"
    assert 2 <= len(seen) < 8


def test_a_bar_on_a_terminal():
    ours, theirs = open_terminal()
    script = "from qtool.cli.progress import progress\nwith progress('calibrate') as tell: tell(1, 2); tell(2, 2)"
    result = call(
        [], program=(sys.executable, "-c", script), stderr=theirs, env=environment(TERM="xterm", COLUMNS="80")
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert (result.returncode, result.stdout) == (0, b"")
    assert "calibrate" in shown
    assert "100%" in shown
