"""Fake-quantize alone beside `clone`, and beside ATen's ops that do the same with less in hand.

Every time counts the memory of its results, as `clone` does. Runs alternate (clone, op, clone, op ...); a ratio is the
median of the ratios pair by pair. "clone, large pages" is a copy into memory of `allocate_like`, which the kernels use.

    python -m benchmarks.fake_quantize [--rounds 11] [--threads 2] [--sizes 1e3 1e6] [--compiled] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from qtool.numerics.grid import Grid
from qtool.numerics.kernels.allocate import allocate_like
from qtool.numerics.kernels.fake_quantize import decode, quantize_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 4e7)
DTYPES = (torch.float32, torch.bfloat16)
GRID = Grid(torch.tensor(0.03), torch.tensor(128, dtype=torch.int32), 0, 255)
AT_LEAST_SECONDS = 1e-3
"""What a single timing lasts at least: small ops are run in a row."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One op on one tensor: medians in microseconds, and the median of the ratios to `clone`."""

    op: str
    dtype: str
    num_elements: int
    microseconds: float
    clone_microseconds: float
    ratio: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES)
    parser.add_argument("--compiled", action="store_true", help="the definition compiled by Inductor, too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for dtype in DTYPES:
        for size in options.sizes:
            x = torch.randn(int(size), generator=torch.Generator().manual_seed(0)).to(dtype)
            ops = ops_on(x) | (compiled_ops_on(x) if options.compiled else {})
            rows += [paired(name, op, x, options.rounds) for name, op in ops.items()]
    show(rows, options.rounds)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


def ops_on(x: Tensor) -> dict[str, Callable[[], object]]:
    """Return what is timed; a share of 0.0001 of the elements is clamped in the first, half of them in the second."""
    grid, half = GRID, GRID._replace(qmin=128)
    mask, codes = quantize_values(x, half).mask, quantize_values(x, grid).codes
    return {
        "clone, large pages": lambda: allocate_like(x).copy_(x),
        "values, codes, mask: few clamped": lambda: quantize_values(x, grid),
        "values, codes, mask: half clamped": lambda: quantize_values(x, half),
        "values": lambda: quantize_values(x, grid, wants_codes=False, wants_mask=False),
        "mask applied, half": lambda: mask.apply(x),
        "decode": lambda: decode(codes, grid, x.dtype),
        "ATen cachemask: values, byte mask": lambda: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(
            x, float(grid.scale), int(grid.zero_point), grid.qmin, grid.qmax
        ),
    } | fused_op_on(x)


def fused_op_on(x: Tensor) -> dict[str, Callable[[], object]]:
    """Return ATen's op that observes, too; it takes float32 alone."""
    if x.dtype != torch.float32:
        return {}
    on = torch.ones(1, dtype=torch.int64)
    low, high, scale, zero = torch.tensor(-3.84), torch.tensor(3.81), torch.ones(1), torch.zeros(1, dtype=torch.int32)

    def run() -> object:
        return torch._fused_moving_avg_obs_fq_helper(x, on, on, low, high, scale, zero, 0.01, 0, 255, -1)

    return {"ATen fused: observe, values, byte mask": run}


def compiled_ops_on(x: Tensor) -> dict[str, Callable[[], object]]:
    run = torch.compile(lambda x: quantize_values(x, GRID), dynamic=False)
    return {"Inductor: values, codes, mask": lambda: run(x)}


def paired(name: str, op: Callable[[], object], x: Tensor, rounds: int) -> Row:
    """Return the medians of both after a warm-up, run in turn."""
    times = max(1, int(AT_LEAST_SECONDS / max(seconds(x.clone, 3), 1e-9)))
    seconds(op, 2)
    pairs = [(seconds(op, times), seconds(x.clone, times)) for _ in range(rounds)]
    return Row(
        op=name,
        dtype=str(x.dtype).removeprefix("torch."),
        num_elements=x.numel(),
        microseconds=1e6 * statistics.median(a for a, _ in pairs),
        clone_microseconds=1e6 * statistics.median(b for _, b in pairs),
        ratio=statistics.median(a / b for a, b in pairs),
    )


def seconds(run: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def show(rows: list[Row], rounds: int) -> None:
    table = Table(title=f"medians of {rounds} alternating runs, {torch.get_num_threads()} threads")
    for heading, justify in (
        ("", "left"),
        ("dtype", "left"),
        ("elements", "right"),
        ("us", "right"),
        ("clone", "right"),
    ):
        table.add_column(heading, justify=justify)
    table.add_column("of clone", justify="right")
    for row in rows:
        times = f"{row.microseconds:.0f}", f"{row.clone_microseconds:.0f}", f"{row.ratio:.2f}"
        table.add_row(row.op, row.dtype, f"{row.num_elements:.0e}", *times)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
