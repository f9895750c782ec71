"""What a training step costs: float, each memory mode of qtool, others' flows; beside what it must cost at most.

Saved are storages alive between forward and backward that were not before (parameters, buffers and the batch itself
left out); the peak is the highest resident size of a step over the one before it. The steps of a table alternate in one
process, its own; a time ratio is the median of the ratios round by round. All is measured under a fixed malloc setting,
the peak under glibc's default too. Ratios are to float in the same memory format.

    python -m benchmarks.training --memory-format both --peers --json training.json     the whole table, an hour
    make bench                                                                          batch 8, without ResNet50
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torchvision
from rich.console import Console
from rich.table import Table

import qtool
from benchmarks.training_bars import AUTOCAST, BARS, BATCHES, OFF_TO_ON, PEAK, STEP, Bar, ratios
from benchmarks.training_peers import PEERS, why_not
from qtool.backends.host import host_facts
from qtool.numerics.kernels import native
from qtool.passes.points import Mode
from qtool.training.malloc import Malloc, malloc_in_words
from qtool.training.resident_size import peak_source
from qtool.training.saved_bytes import saved_by
from qtool.training.step_cost import StepCost, TrainingStep, compare
from qtool.types import Memory
from qtool.workflows.bench import BenchSettings, stand_in_loss, training_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from qtool.runtime.prepared import PreparedModel

MEMORY_FORMATS = ("contiguous", "channels_last")
CONFIG = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to train one model, and how it stands to what it must cost.

    Attributes:
        model: the model and its batch.
        memory_format: of all ways of it.
        against: the way that ratios are to.
        cost: what was measured.
        verdicts: by measure, where there is a bar.
    """

    model: str
    memory_format: str
    against: str
    cost: StepCost
    verdicts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What a forward pass saves under bfloat16 autocast, beside float under it."""

    model: str
    way: str
    saved_bytes: int
    ratio: float
    verdict: str


def main() -> int:
    options = parsed()
    rows: list[Row] = []
    savings: list[Saving] = []
    print(conditions_in_words(options))
    for name in options.models:
        for memory_format in chosen_formats(options.memory_format):
            rows += shown(in_own_process(beside_float, name, memory_format, options))
            write_json(rows, savings, options)
        if options.off_to_on:
            rows += shown(in_own_process(off_to_on, name, options))
        if options.autocast:
            savings += in_own_process(under_autocast, name, options)
        write_json(rows, savings, options)
    found = [verdict for row in rows for verdict in row.verdicts.values()] + [saving.verdict for saving in savings]
    is_missed = any(verdict.startswith("NOT MET") for verdict in found)
    return int(is_missed and options.batch is None)  # at another batch the bars are hints


def in_own_process(work: Callable[..., list[Any]], *args: object) -> list[Any]:
    """Return what `work` returns in a fresh process: only there has malloc its default, which nothing leads back to."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--modes", nargs="*", type=Memory, choices=list(Memory), default=list(Memory), metavar="MODE")
    parser.add_argument("--batch", type=int, help="another batch than the bars are for")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--memory-format", choices=[*MEMORY_FORMATS, "both"], default="contiguous")
    parser.add_argument(
        "--malloc", type=Malloc, choices=[Malloc.RETURN, Malloc.KEEP], default=Malloc.RETURN, metavar="return|keep"
    )
    parser.add_argument("--autocast", action="store_true", help="saved bytes under bfloat16 autocast too")
    parser.add_argument("--off-to-on", action="store_true", help="qtool's model against itself without fake-quantize")
    parser.add_argument("--peers", action="store_true", help="torch.ao FX and torchao PT2E too")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def chosen_formats(word: str) -> tuple[str, ...]:
    return MEMORY_FORMATS if word == "both" else (word,)


def made(name: str, options: argparse.Namespace) -> tuple[nn.Module, PreparedModel, Tensor]:
    """Return the float model, the same prepared and calibrated, and the batch."""
    warnings.simplefilter("ignore")  # torch's own flows announce their end many times
    torch.manual_seed(0)
    batch = options.batch or BATCHES[name]
    model = getattr(torchvision.models, name)(weights=None).train()
    x = torch.randn(batch, 3, 224, 224)
    prepared = qtool.prepare(model, x[:2], CONFIG)
    qtool.calibrate(prepared, [x[:8]])
    return model, prepared, x


def titled(name: str, x: Tensor) -> str:
    return f"{name}, batch {x.shape[0]}"


def beside_float(name: str, memory_format: str, options: argparse.Namespace) -> list[Row]:
    """Return a row for float, each mode and each peer, in one memory format."""
    model, prepared, x = made(name, options)
    title = titled(name, x)
    steps = all_steps(model, prepared, x, options, memory_format)
    costs = measured(steps, options, f"{title}, {memory_format}")
    return [row(name, title, memory_format, cost, costs) for cost in costs]


def all_steps(
    model: nn.Module, prepared: PreparedModel, x: Tensor, options: argparse.Namespace, memory_format: str
) -> list[TrainingStep]:
    """Return the steps of float, the modes and the peers, all in one memory format."""
    settings = BenchSettings(modes=tuple(options.modes), channels_last=memory_format == "channels_last")
    steps = training_steps(copy.deepcopy(model), prepared, (x,), stand_in_loss(), settings)
    for name, prepare in PEERS.items() if options.peers else ():
        if reason := why_not(name):
            print(f"{name}: left out: {reason}", file=sys.stderr)
            continue
        layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        peer = prepare(copy.deepcopy(model), x).to(memory_format=layout)
        optimizer = torch.optim.SGD(peer.parameters(), **steps[0].optimizer.defaults)
        step = TrainingStep(name=name, model=peer, optimizer=optimizer, inputs=steps[0].inputs, loss=stand_in_loss())
        steps.append(step)
    return steps


def measured(steps: list[TrainingStep], options: argparse.Namespace, title: str) -> list[StepCost]:
    """Compare the steps and say how long it took."""
    began = time.monotonic()
    costs = compare(steps, rounds=options.rounds, malloc=options.malloc)
    print(f"{title}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return costs


def row(name: str, title: str, memory_format: str, cost: StepCost, costs: list[StepCost]) -> Row:
    """Return a cost with its verdicts; a step of `mixed` must take no longer than one of `recompute`."""
    bars = dict(BARS.get((name, cost.name), {}))
    recompute = next((other.step_ratio for other in costs if other.name == Memory.RECOMPUTE), None)
    if bars and cost.name == Memory.MIXED and recompute is not None:
        bars[STEP] = Bar(recompute, recompute)
    found = ratios(cost)
    verdicts = {measure: bar.verdict(found[measure]) for measure, bar in bars.items()}
    return Row(model=title, memory_format=memory_format, against="float", cost=cost, verdicts=verdicts)


def under_autocast(name: str, options: argparse.Namespace) -> list[Saving]:
    """Return what is saved under bfloat16 autocast."""
    model, prepared, x = made(name, options)
    steps = training_steps(model, prepared, (x,), stand_in_loss(), BenchSettings(modes=tuple(options.modes)))
    found = []
    for step in steps:
        cast = TrainingStep(**{**vars(step), "autocast": True})
        cast()
        found.append((step.name, saved_by(cast.forward, step.model).num_bytes))
    reference = found[0][1]
    savings = [
        Saving(
            model=titled(name, x),
            way=way,
            saved_bytes=num_bytes,
            ratio=num_bytes / reference,
            verdict=AUTOCAST.verdict(num_bytes / reference) if way == Memory.COMPRESSED else "",
        )
        for way, num_bytes in found
    ]
    for saving in savings:
        print(
            f"{saving.model}, bfloat16 autocast, {saving.way}: saved {saving.saved_bytes / MIB:.0f} MiB, "
            f"{saving.ratio:.2f} of float {saving.verdict}"
        )
    return savings


def off_to_on(name: str, options: argparse.Namespace) -> list[Row]:
    """Return the prepared model without any fake-quantize, and each mode against that."""
    _, prepared, x = made(name, options)
    title = titled(name, x)
    settings = BenchSettings(modes=tuple(options.modes))
    off = copy.deepcopy(prepared).train()
    off.set_mode(Mode.FLOAT)
    first, *others = training_steps(off, prepared, (x,), stand_in_loss(), settings)
    steps = [TrainingStep(**{**vars(first), "name": "fake-quantize off"}), *others]
    return [
        Row(
            model=title,
            memory_format="contiguous",
            against="fake-quantize off",
            cost=cost,
            verdicts={measure: OFF_TO_ON[measure].verdict(ratios(cost)[measure]) for measure in (PEAK, STEP)}
            if cost.name == Memory.COMPRESSED
            else {},
        )
        for cost in measured(steps, options, f"{title}, fake-quantize off and on")
    ]


def conditions(options: argparse.Namespace) -> dict[str, object]:
    """Return what the figures depend on."""
    return {
        "num_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu_flags": list(host_facts().isa_flags or ()),
        "kernels": "C" if native.takes(torch.zeros(1)) else "ATen",
        "malloc": malloc_in_words(options.malloc),
        "default_malloc": malloc_in_words(Malloc.DEFAULT),
        "peak": peak_source(),
        "rounds": options.rounds,
        "image_size": 224,
        "is_batch_of_the_bars": options.batch is None,
    }


def conditions_in_words(options: argparse.Namespace) -> str:
    facts = conditions(options)
    return (
        f"{facts['num_threads']} threads, torch {facts['torch']}, {' '.join(host_facts().isa_flags or ())}, "
        f"kernels: {facts['kernels']}\n"
        f"default peak: {facts['default_malloc']}; all else: {facts['malloc']}; peaks: {facts['peak']}\n"
        f"medians of {options.rounds} alternating rounds; bars are for batch 32 (ResNet50: 16) of 224x224"
    )


def write_json(rows: list[Row], savings: list[Saving], options: argparse.Namespace) -> None:
    """Write what is known so far: a long run that is ended early has not been for nothing."""
    if options.json:
        tables = {"rows": [asdict(row) for row in rows], "autocast": [asdict(saving) for saving in savings]}
        options.json.write_text(json.dumps({"conditions": conditions(options), **tables}, indent=2))


def shown(rows: list[Row]) -> list[Row]:
    """Print one table and return its rows."""
    table = Table(title=f"{rows[0].model}, {rows[0].memory_format}; ratios to {rows[0].against}")
    for heading in ("", "saved MiB", "ratio", "peak MiB", "ratio", "fixed malloc", "ratio", "step ms", "ratio", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(*cells(row))
    Console(width=150).print(table)
    return rows


def cells(row: Row) -> list[str]:
    cost = row.cost
    return [
        cost.name,
        f"{cost.saved_bytes / MIB:.0f}",
        f"{cost.saved_ratio:.2f}",
        f"{cost.default_peak_bytes / MIB:.0f}",
        f"{cost.default_peak_ratio:.2f}",
        f"{cost.peak_bytes / MIB:.0f}",
        f"{cost.peak_ratio:.2f}",
        f"{1e3 * cost.seconds:.0f}",
        f"{cost.step_ratio:.2f}",
        "; ".join(f"{measure} {verdict}" for measure, verdict in row.verdicts.items()),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
