"""`qtool bench FILE`: memory and time of a training step, float beside each memory mode."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtool.cli.messages import say
from qtool.cli.options import json_option, seed_option, set_option, traceback_option
from qtool.cli.progress import progress
from qtool.cli.streams import claimed_stdout, read_input
from qtool.cli.summary import json_text
from qtool.cli.table import text_table
from qtool.config.load import load_config, parse_config
from qtool.config.schema import Config
from qtool.errors import UsageError, nearest
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.types import Memory, Stage

if TYPE_CHECKING:
    from qtool.training.step_cost import StepCost
    from qtool.workflows.bench import Bench, BenchSettings

EXAMPLES = """\b
Examples:
  qtool bench prepared.pt2 --batch-size 32
  qtool bench model.yaml --modes compressed,recompute --json
  OMP_NUM_THREADS=4 qtool bench model.yaml --memory-format channels_last --set data.train=null
"""

ZIP_MAGIC = b"PK"
"""What a model file begins with, and no config."""

HEAD_BYTES = 4096
"""How much is looked at to tell the two apart; a binary file has a zero byte in as many, and no text has."""

MEMORY_FORMATS = ("contiguous", "channels_last")
HEADER = ("", "saved MiB", "ratio", "peak MiB", "ratio", "peak, fixed malloc", "ratio", "step ms", "ratio")


def _modes(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[Memory, ...]:
    """Return the modes that a list with commas names."""
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in list(Memory):
            known = [mode.value for mode in Memory]
            hint = nearest(name, known) or "."
            msg = f"--modes: {name!r} is no memory mode{hint} Use some of: {', '.join(known)}."
            raise UsageError(msg)
    return tuple(dict.fromkeys(map(Memory, names)))


@click.command("bench", epilog=EXAMPLES)
@click.argument("file", metavar="FILE|CONFIG")
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Samples.")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=11, show_default=True, metavar="N", help="Steps timed of each."
)
@click.option(
    "--modes",
    default=",".join(Memory),
    show_default=True,
    callback=_modes,
    metavar="A,B",
    help="Memory modes to measure beside float.",
)
@click.option(
    "--memory-format",
    type=click.Choice(MEMORY_FORMATS),
    default=MEMORY_FORMATS[0],
    show_default=True,
    help="Layout of weights and pictures, of float too.",
)
@json_option
@seed_option
@set_option
@traceback_option
def command(
    file: str,
    batch_size: int,
    rounds: int,
    modes: tuple[Memory, ...],
    memory_format: str,
    as_json: bool,
    seed: int,
    settings: tuple[str, ...],
) -> int:
    """Measure a training step of the model in FILE, or of CONFIG: what it saves, its peak, its time.

    Float comes first, in the same memory format, and each memory mode of `train.memory` beside it, in turn and in
    one process. Saved are storages alive between forward and backward that were not before, without parameters and
    buffers; the peak is the highest resident size of a step over the one before it.
    """
    given = _given(file, settings)
    with claimed_stdout() as stdout:
        from qtool.workflows.bench import BenchSettings

        wanted = BenchSettings(
            batch_size=batch_size,
            rounds=rounds,
            modes=modes,
            channels_last=memory_format == "channels_last",
            seed=seed,
        )
        measured = _bench(given, wanted)
        stdout.write_text(json_text(_as_json(measured)) if as_json else _as_text(measured))
    return 0


def _given(file: str, settings: tuple[str, ...]) -> Config | Path | bytes:
    """Return the config, or the model's file after a look at its stamp: whichever FILE|CONFIG names."""
    source = read_input(file)
    if not _begins_like_a_model(source):
        if isinstance(source, bytes):
            return parse_config(source, name="stdin", base=Path.cwd(), settings=settings)
        return load_config(source, settings)
    if settings:
        msg = f"--set replaces a value of a config, and {file!r} is a model, which has what it was prepared with"
        raise UsageError(msg)
    stamp = check_loadable(read_qtool_file(source))
    if stamp.stage not in (Stage.PREPARED, Stage.TRAINED):
        msg = f"{file!r} is {stamp.stage.value} already, and has no training step; give what prepare or train wrote"
        raise UsageError(msg)
    return source


def _begins_like_a_model(source: Path | bytes) -> bool:
    if isinstance(source, bytes):
        name, head = "stdin", source[:HEAD_BYTES]
    else:
        with source.open("rb") as opened:
            name, head = repr(str(source)), opened.read(HEAD_BYTES)
    if head.startswith(ZIP_MAGIC):
        return True
    if b"\0" in head:
        msg = f"{name} is neither a config, which is text in UTF-8, nor a model file that prepare or train wrote"
        raise UsageError(msg)
    return False


def _bench(given: Config | Path | bytes, wanted: BenchSettings) -> Bench:
    from qtool.runtime.prepared import PreparedModel
    from qtool.workflows.bench import bench, bench_from_config
    from qtool.workflows.load import read
    from qtool.workflows.seed import seed_everything

    seed_everything(wanted.seed)
    with progress("bench", "steps") as on_step:
        if isinstance(given, Config):
            if given.quantize.mode != "qat":
                say("note: measured as with quantize.mode: qat, since what is measured is training")
            return bench_from_config(given, wanted, on_step=on_step)
        prepared = read(given)
        assert isinstance(prepared, PreparedModel)  # its stamp says so
        return bench(prepared, wanted, on_step=on_step)


def _as_json(measured: Bench) -> dict[str, Any]:
    return dataclasses.asdict(measured)


def _as_text(measured: Bench) -> str:
    rows = [_cells(cost) for cost in measured.costs]
    shapes = ", ".join("x".join(map(str, shape)) for shape in measured.shapes)
    how = (
        f"{measured.data} of {shapes}, {measured.memory_format}, {measured.num_threads} threads, "
        f"median of {measured.rounds} round{'s' if measured.rounds > 1 else ''}; ratios are to float\n"
        f"saved, fixed peak and step: {measured.malloc}; peaks: {measured.peak_source}"
    )
    return f"{text_table(HEADER, rows, right=set(HEADER[1:]))}\n{how}"


def _cells(cost: StepCost) -> tuple[str, ...]:
    return (
        cost.name,
        _mebibytes(cost.saved_bytes),
        f"{cost.saved_ratio:.2f}",
        _mebibytes(cost.default_peak_bytes),
        f"{cost.default_peak_ratio:.2f}",
        _mebibytes(cost.peak_bytes),
        f"{cost.peak_ratio:.2f}",
        f"{1e3 * cost.seconds:.0f}",
        f"{cost.step_ratio:.2f}",
    )


def _mebibytes(num_bytes: int) -> str:
    mebibytes = num_bytes / 2**20
    return f"{mebibytes:.1f}" if mebibytes >= 10 else f"{mebibytes:.3f}"
