"""What `qtool inspect` takes: time and peak memory of the whole process, beside `python -c "import torch"`.

The files are made first, in a process of its own, so that this one stays small: the memory of a process that starts
another counts as that one's. Runs alternate (each file, then the import, again ...); the table shows medians. Memory is
the most that was resident at once, mapped pages included.

    python -m benchmarks.inspect_files [--rounds 5] [--folder FOLDER] [--json FILE]

A folder that has the files keeps them: making them takes a minute and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

FILES = {
    "mobilenet_v2_prepared.pt2": "MobileNetV2, prepared",
    "mobilenet_v2_int8.pt2": "MobileNetV2, converted",
    "linear_int8.pt2": "linears, converted",
    "linear.pt": "state dict in float",
    "linear_int8.onnx": "linears, ONNX",
    "linear_int8.safetensors": "int8 weights and scales, safetensors",
}
WIDTH, LAYERS = 6600, 8
"""Linears of 8 * 6600 * 6600 codes: 348 MB."""
FLOAT_WIDTH = 3300
"""The same number of bytes as float32."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once, as an installer does, and not in every run."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What inspecting one file took: medians over the rounds."""

    what: str
    megabytes: float
    seconds: float
    torch_ratio: float
    peak_megabytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if any(not (folder / name).exists() for name in FILES):
            subprocess.run([sys.executable, "-m", "benchmarks.inspect_files_made", folder], check=True)
        rows = measured(folder, options.rounds)
    show(rows, options.rounds)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


def measured(folder: Path, rounds: int) -> list[Row]:
    """Return one row for each file, and one for the import."""
    commands = {name: ["-m", "qtool", "inspect", str(folder / name)] for name in FILES}
    commands["import torch"] = ["-c", "import torch"]
    for command in commands.values():
        run(command)
    taken = [{name: run(command) for name, command in commands.items()} for _ in range(rounds)]
    return [
        Row(
            what=FILES.get(name, f'python -c "{name}"'),
            megabytes=(folder / name).stat().st_size / 1e6 if name in FILES else 0,
            seconds=statistics.median(each[name][0] for each in taken),
            torch_ratio=statistics.median(each[name][0] / each["import torch"][0] for each in taken),
            peak_megabytes=statistics.median(each[name][1] for each in taken),
        )
        for name in commands
    ]


def run(arguments: list[str]) -> tuple[float, float]:
    """Return how long a process took in seconds, and the most megabytes that were resident in it."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(f"{arguments} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6


def show(rows: list[Row], rounds: int) -> None:
    table = Table(title=f"qtool inspect, whole processes: medians of {rounds} alternating runs")
    for heading, justify in (
        ("", "left"),
        ("MB", "right"),
        ("s", "right"),
        ("of the import", "right"),
        ("peak MB", "right"),
    ):
        table.add_column(heading, justify=justify)
    for row in rows:
        size = f"{row.megabytes:.0f}" if row.megabytes else ""
        table.add_row(row.what, size, f"{row.seconds:.2f}", f"{row.torch_ratio:.2f}", f"{row.peak_megabytes:.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
