"""Runs commands as a shell would: real processes, real pipes, a real terminal; every result has its exit status."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOY = (sys.executable, "-m", "tests.cli.toy", "toy")
QTOOL = (sys.executable, "-m", "qtool")


def environment(**changes):
    """Return this process's environment with the project importable from any folder, one thread, and usual buffers."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **changes}


def default_signals():
    """Undo what a test runner in the background of a shell hands on: ignored SIGINT and SIGHUP."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)


def start(arguments, *, program=QTOOL, cwd=None, env=None, preexec=default_signals, **streams):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    command = [*program, *map(str, arguments)]
    # The child only sets signals and limits and closes descriptors before it starts.
    return subprocess.Popen(command, cwd=cwd, env=env or environment(), preexec_fn=preexec, **pipes)  # noqa: PLW1509


def call(arguments, *, input=None, **settings):
    """Run to the end and return the finished process; bytes in `stdout`, text in `stderr`."""
    if input is not None:
        settings["stdin"] = subprocess.PIPE
    process = start(arguments, **settings)
    out, err = process.communicate(input=input, timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, (err or b"").decode())


def wait_for(process, text):
    """Read stderr until a line holds `text`."""
    said = []
    for line in process.stderr:
        said.append(line.decode())
        if text in said[-1]:
            return
    message = f"{text!r} was never said, but {said}"
    raise AssertionError(message)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def open_terminal():
    """Return a pseudo-terminal: (our end, the program's end)."""
    return pty.openpty()
