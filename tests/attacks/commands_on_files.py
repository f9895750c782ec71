"""Runs command lines in one process and writes what each came to as JSON; torch is imported once for all of them.

Usage: python -m tests.attacks.commands_on_files LINES RESULTS

LINES is JSON: a list of {"arguments": [...], "stdin": PATH or null}; one that begins with `api:` names a function of
`qtool`, called with the path that follows. RESULTS gets a list of [status, all that was printed].
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from qtool.cli.main import run


def printed(path: Path, arguments: list[str], stdin: str | None) -> list[object]:
    """Run one command line with its streams in files; return its status and what it printed."""
    sys.stdin = Path(stdin or os.devnull).open()  # noqa: SIM115 - as the shell does, to the end
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        status = called(arguments) if arguments[0].startswith("api:") else run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    return [status, path.read_text(errors="replace")]


def called(arguments: list[str]) -> int:
    """Call a function of the library; an error of qtool's is its exit status, any other a crash."""
    import qtool  # noqa: PLC0415
    from qtool.errors import QtoolError  # noqa: PLC0415

    function, path, *rest = arguments
    sources = {"path": path, "bytes": Path(path).read_bytes(), "file": Path(path).open("rb")}  # noqa: SIM115
    name, _, kind = function.removeprefix("api:").partition("-")
    try:
        getattr(qtool, name)(sources[kind], *rest)
    except QtoolError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def main() -> None:
    """Run all lines."""
    lines, results = map(Path, sys.argv[1:])
    wanted = json.loads(lines.read_text())
    found = [printed(results.with_suffix(".txt"), line["arguments"], line["stdin"]) for line in wanted]
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
