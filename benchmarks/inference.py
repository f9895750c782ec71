"""What a run of an int8 model costs: qtool on each engine and on the fastest of each node, beside float and others.

All ways of a table run in turn in one process, on as many threads; a ratio is the median of the ratios round by round,
and stands with the middle half of them. Above 1 means that qtool's `auto` is faster. Weights are random, batch norms
settled and ranges calibrated on random images: neither changes what is computed.

    python -m benchmarks.inference [--models resnet18] [--batches 1] [--rounds 7] [--json FILE]

It ends with status 1 where `auto` misses a bar.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
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
from benchmarks import inference_peers as peers
from qtool.lowering.engine_switch import available_engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

MODELS = ("mobilenet_v2", "resnet18")
BATCHES = (1, 16)
AUTO = "qtool auto"
LEAST = 0.97
"""`auto` has at least this share of the speed of the best other way, in each cell."""
MEAN = 1.0
"""And this on average of all cells, geometrically, to the best of torch.ao."""
SETTLING_SECONDS = 0.05
ENOUGH_SECONDS = 0.05
"""A faster run is repeated within a round until it takes that long."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to run one model.

    Attributes:
        milliseconds: the median of a run.
        ratio: median over the rounds of its time to that of `auto`.
        low: the first quartile of these.
        high: the third.
    """

    model: str
    batch: int
    way: str
    milliseconds: float
    ratio: float
    low: float
    high: float


def main() -> int:
    options = parsed()
    warnings.simplefilter("ignore")  # torch announces the end of its own flows many times
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    for name in options.models:
        model = settled(name)
        converted = qtool.convert(calibrated(model))
        for batch in options.batches:
            x = torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(batch))
            rows += shown(compared(name, batch, all_ways(name, model, converted, x, options), options.rounds))
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return int(not all([bar(rows, *each) for each in BARS]))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


# --- models


@torch.no_grad()
def settled(name: str) -> nn.Module:
    """Return a model whose batch norms know the statistics of what they see."""
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).train()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = None  # an average of all batches
    for _ in range(2):
        model(torch.randn(8, 3, 224, 224))
    return model.eval()


def calibrated(model: nn.Module, backend: str = "fbgemm") -> nn.Module:
    """Return the model prepared in ranges that every engine is right in."""
    x = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    prepared = qtool.prepare(model, x, {"target": {"backend": backend}})
    qtool.calibrate(prepared, [x])
    return prepared


def all_ways(
    name: str, model: nn.Module, converted: nn.Module, x: Tensor, options: argparse.Namespace
) -> dict[str, Callable[[], object]]:
    """Return by name what runs the model once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.pt2"
        qtool.save(converted, file)
        ways = {AUTO: running(qtool.load(file, engine="auto", example=x), x)}
        for engine in available_engines():
            ways[f"qtool {engine}"] = running(qtool.load(file, engine=engine), x)
        ways |= peers.float_models(model, x)
        ways |= peers.torch_ao(model, x)
        ways |= peers.onnx_runtime(model, qtool.convert(calibrated(model, "onnxruntime")), x, options.threads)
    return ways


def running(model: nn.Module, x: Tensor) -> Callable[[], object]:
    return lambda: model(x)


# --- measuring


@torch.no_grad()
def compared(name: str, batch: int, ways: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    """Return a row for each way, all run in turn."""
    repeats = {way: repeats_of(run) for way, run in ways.items()}
    found = [timed(ways, repeats, random.Random(number)) for number in range(rounds)]
    rows = []
    for way in ways:
        ratios = sorted(round_[way] / round_[AUTO] for round_ in found)
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        milliseconds = 1e3 * statistics.median(round_[way] for round_ in found)
        row = Row(model=name, batch=batch, way=way, milliseconds=milliseconds, ratio=middle, low=low, high=high)
        rows.append(row)
    return rows


def timed(ways: dict[str, Callable[[], object]], repeats: dict[str, int], order: random.Random) -> dict[str, float]:
    """Return the seconds of a run of each way, in an order of its own in every round.

    Threads of the way before may spin on, as ONNX Runtime's do for some milliseconds: they are waited for, and what
    stood in the caches is brought back by a run that does not count.
    """
    found = {}
    for way in order.sample(sorted(ways), len(ways)):
        time.sleep(SETTLING_SECONDS)
        ways[way]()
        found[way] = seconds(ways[way], repeats[way])
    return found


def repeats_of(run: Callable[[], object]) -> int:
    """Return how often a run is repeated in a round, after two to warm up."""
    run(), run()
    return max(1, min(10, int(ENOUGH_SECONDS / seconds(run, 1))))


def seconds(run: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


# --- what it must reach

BARS = (("torch.ao", True), ("qtool", True), ("onnxruntime int8", False))
"""Beginnings of ways that `auto` is held against the best of, and whether that is a bar or a goal."""


def bar(rows: list[Row], kind: str, is_bar: bool) -> bool:
    """Say how `auto` stands to the best way of a kind in each cell; return whether it is met, or no bar."""
    cells: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row.model, row.batch
        if row.way.startswith(kind) and row.way != AUTO and row.ratio < cells.get(key, row).ratio + (key not in cells):
            cells[key] = row
    if not cells:
        return True
    mean = statistics.geometric_mean(row.ratio for row in cells.values())
    wanted = MEAN if kind == "torch.ao" else LEAST
    is_met = mean >= wanted and all(row.ratio >= LEAST for row in cells.values())
    shares = ", ".join(f"{m} {b}: {row.ratio:.2f} ({row.way})" for (m, b), row in cells.items())
    verdict = "met" if is_met else "NOT MET" if is_bar else "goal, not met"
    print(f"auto to the best of {kind}: {shares}; mean {mean:.2f}, at least {LEAST} and {wanted} on average: {verdict}")
    return is_met or not is_bar


def shown(rows: list[Row]) -> list[Row]:
    """Print one table and return its rows."""
    table = Table(title=f"{rows[0].model}, batch {rows[0].batch}, {torch.get_num_threads()} threads")
    for heading in ("", "ms", "time to auto", "middle half"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.way, f"{row.milliseconds:.1f}", f"{row.ratio:.2f}", f"{row.low:.2f} .. {row.high:.2f}")
    Console(width=100).print(table)
    sys.stdout.flush()
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
