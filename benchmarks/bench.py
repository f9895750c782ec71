"""How long things take, beside what a person would compare them with, in the same run.

Commands are timed as whole processes; models in this process. Runs alternate (A B A B ...), and the table shows medians
and the median of the ratios pair by pair: on a machine whose speed drifts, read the ratios.

    python benchmarks/bench.py [--rounds 11] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torchvision
from rich.console import Console
from rich.table import Table

import qtool
from qtool.lowering.engine_switch import available_engines
from qtool.runtime.module import RuntimeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

MODELS = ("mobilenet_v2", "resnet18")
BATCHES = (1, 16)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing timed against another: medians in milliseconds, and the median of the pairwise ratios."""

    what: str
    against: str
    milliseconds: float
    against_milliseconds: float
    ratio: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [*commands(options.rounds), *inference(options.rounds)]
    show(rows, options.rounds)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


def paired(what: str, run: Callable[[], object], against: str, other: Callable[[], object], rounds: int) -> Row:
    """Return the medians of both after one warm-up, run in turn."""
    run(), other()
    pairs = [(seconds(run), seconds(other)) for _ in range(rounds)]
    return Row(
        what=what,
        against=against,
        milliseconds=1e3 * statistics.median(a for a, _ in pairs),
        against_milliseconds=1e3 * statistics.median(b for _, b in pairs),
        ratio=statistics.median(a / b for a, b in pairs),
    )


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def commands(rounds: int) -> list[Row]:
    """Time the commands that must answer at once beside the import they do without."""
    torch_import = process("-c", "import torch")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "int8.pt2"
        qtool.save(qtool.convert(calibrated("resnet18", "fbgemm")), file)
        size = f"{file.stat().st_size / 1e6:.0f} MB"
        timed = {
            "qtool --help": process("-m", "qtool", "--help"),
            "qtool backends": process("-m", "qtool", "backends"),
            f"qtool inspect, file of {size}": process("-m", "qtool", "inspect", str(file)),
        }
        return [paired(name, run, "python -c 'import torch'", torch_import, rounds) for name, run in timed.items()]


def process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def inference(rounds: int) -> list[Row]:
    """Time each engine beside the float model in the memory format that suits it better."""
    rows = []
    for name in MODELS:
        model = float_model(name).to(memory_format=torch.channels_last)
        for engine in available_engines():
            runtime = RuntimeModel(qtool.convert(calibrated(name, engine)))
            rows += [against_float(name, engine, runtime, model, batch, rounds) for batch in BATCHES]
    return rows


def against_float(name: str, engine: str, runtime: nn.Module, model: nn.Module, batch: int, rounds: int) -> Row:
    x = torch.randn(batch, 3, 224, 224)
    wide = x.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def in_float() -> torch.Tensor:
        return model(wide)

    return paired(
        f"{name} int8 on {engine}, batch {batch}", lambda: runtime(x), "float, channels_last", in_float, rounds
    )


def calibrated(name: str, backend: str) -> nn.Module:
    x = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    prepared = qtool.prepare(float_model(name), x, {"target": {"backend": backend}})
    qtool.calibrate(prepared, [x])
    return prepared


def float_model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return getattr(torchvision.models, name)(weights=None).eval()


def show(rows: list[Row], rounds: int) -> None:
    table = Table(title=f"medians of {rounds} alternating runs, {torch.get_num_threads()} threads")
    for heading, justify in (("", "left"), ("ms", "right"), ("beside", "left"), ("ms", "right"), ("ratio", "right")):
        table.add_column(heading, justify=justify)
    for row in rows:
        table.add_row(
            row.what, f"{row.milliseconds:.1f}", row.against, f"{row.against_milliseconds:.1f}", f"{row.ratio:.2f}"
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
