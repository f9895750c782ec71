"""Runs `qtool inspect` on many files: each in a process of its own, forked from one that has imported everything.

Usage: python -m tests.attacks.run_inspect JOBS RESULTS

JOBS is JSON, a list of {"lines": [[ARGUMENT, ...], ...], "folder": PATH}: the command lines of one process, and the
folder that it may read. RESULTS gets a list of {"lines", "peak_bytes" (of the process, and its interpreter),
"forbidden", "loaded" (modules), "death" (of a process that was ended)}; of each line {"status", "printed", "seconds"
(of the CPU)}.

The process is watched from within by an audit hook, which sees what Python is about to do: to open a file for writing
or outside the folder, to start a program, to unpickle, to compile or to run text, to import torch.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
from pathlib import Path

import qtool.cli
import qtool.inspection
import qtool.readers
import qtool.report
import qtool.saturation
from qtool.cli.main import run
from tests.readers.sample_files import sample_file

ROOT = Path(__file__).parents[2]
MAX_BYTES = 300 * 2**20
"""Above what the process has before it opens the file."""
MAX_SECONDS = 20
"""After which it is killed; the tests ask for less."""

_READABLE = (
    f"{ROOT}/qtool/",
    "/proc/",
    "/sys/",
    *(path for path in sys.path if path and not ROOT.is_relative_to(path)),
)
"""Code is read when it is imported, and what this machine is."""
_FORBIDDEN = ("os.", "subprocess.", "socket.", "pickle.", "shutil.", "tempfile.", "ctypes.", "urllib.",
              "shelve.", "sqlite3.", "code.", "pty.", "webbrowser.", "builtins.input")  # fmt: skip
_HARMLESS = ("os.listdir", "os.scandir", "os.getxattr", "os.putenv", "os.unsetenv")
_FORBIDDEN_IMPORTS = ("torch", "torchvision", "pickle", "onnx", "safetensors", "executorch", "google")


def preload(file: Path) -> None:
    """Import all that inspecting a valid file imports, so that what is imported later is what a file asked for."""
    for package in (qtool.readers, qtool.inspection, qtool.report, qtool.saturation):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    file.write_bytes(sample_file())
    printed = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    run(["inspect", str(file), "--verbose"])
    run(["inspect", str(file), str(file)])
    os.dup2(printed, 1)


def watch(folder: Path, forbidden: list[str], allowed: set[str]) -> None:
    """Note everything that this process does and must not do, from here on."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, int) and str(path) not in allowed and not _may_open(str(path), flags, folder):
                forbidden.append(f"open {path!r} {flags}")
        elif event == "import":
            if str(arguments[0]).partition(".")[0] in _FORBIDDEN_IMPORTS:
                forbidden.append(f"import {arguments[0]}")
        elif event == "exec":
            code = getattr(arguments[0], "co_filename", "")
            if not os.path.isabs(code) and not code.startswith("<frozen"):  # noqa: PTH117 - a Path would be audited
                forbidden.append(f"exec {code}")
        elif event.startswith(_FORBIDDEN) and event not in _HARMLESS:
            forbidden.append(f"{event} {arguments!r:.100}")

    sys.addaudithook(hook)


def _may_open(path: str, flags: object, folder: Path) -> bool:
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    real = os.path.realpath(path)
    return not writes and (real.startswith((*_READABLE, f"{folder}/")) or path == os.devnull)


def in_child(job: dict[str, object], results: Path) -> None:
    """Run the lines of one job and write what they came to; what is printed is read back from a file."""
    folder, forbidden, found = Path(str(job["folder"])).resolve(), [], []
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    signal.alarm(MAX_SECONDS)
    sys.stdin = Path(os.devnull).open()  # noqa: SIM115
    with results.open("w+b") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        watch(folder, forbidden, {str(results)})
        for line in job["lines"]:
            start, at = time.process_time(), file.seek(0, os.SEEK_END)
            status = run(line)
            sys.stdout.flush()
            sys.stderr.flush()
            seconds = time.process_time() - start
            file.seek(at)
            found.append({"status": status, "seconds": seconds, "printed": file.read().decode(errors="replace")})
        noted = list(forbidden)
        file.truncate(0)
        file.seek(0)
        loaded = sorted(name for name, module in sys.modules.items() if module)
        file.write(json.dumps({"lines": found, "forbidden": noted, "loaded": loaded}).encode())
        file.flush()


def forked(job: dict[str, object], results: Path) -> dict[str, object]:
    """Run a job in a child, and return what it came to with what it took."""
    child = os.fork()
    if child == 0:
        try:
            in_child(job, results)
        finally:
            os._exit(0)
    _, status, usage = os.wait4(child, 0)
    printed = results.read_bytes().decode(errors="replace")
    died = {"lines": [], "forbidden": [], "loaded": [], "death": f"status {status}: {printed[-2000:]}"}
    found = json.loads(printed) if status == 0 and printed.startswith('{"lines"') else died
    return {**found, "peak_bytes": usage.ru_maxrss * 1024}


def main() -> None:
    """Run all jobs."""
    jobs, results = map(Path, sys.argv[1:])
    preload(results.with_suffix(".valid"))
    found = [forked(job, results.with_suffix(".child")) for job in json.loads(jobs.read_text())]
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
