"""`qtool train CONFIG`: quantization-aware training, from the beginning or from a checkpoint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtool.cli.config_file import read_config
from qtool.cli.messages import say
from qtool.cli.options import config_argument, json_option, output_option, set_option, traceback_option
from qtool.cli.prepare import sources_of
from qtool.cli.streams import STREAM, check_is_no_source, check_output, claimed_stdout, read_input, write_output
from qtool.cli.summary import check_one_result, json_text, summary, summary_lines
from qtool.cli.train_progress import training_progress
from qtool.config.load import changed
from qtool.errors import UsageError
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.types import Stage

if TYPE_CHECKING:
    from qtool.cli.streams import Stdout
    from qtool.config.schema import Config
    from qtool.workflows.train import Trained

EXAMPLES = """\b
Examples:
  qtool train model.yaml -o trained.pt2 --checkpoints run1 --metrics run1.jsonl
  qtool train model.yaml -o trained.pt2 --resume run1 --metrics run1.jsonl
  qtool train model.yaml -o - --set train.epochs=3 | qtool convert - -o int8.pt2
"""


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for besides the config."""

    output: str
    prepared: str | None
    resume: Path | None
    checkpoints: Path | None
    metrics: Path | None
    allow_config_change: bool
    as_json: bool


def _path(_context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    if value in ("", STREAM):
        msg = f"{parameter.opts[0]}: {value!r} names no file; standard input and output are for models alone"
        raise UsageError(msg)
    return None if value is None else Path(value)


@click.command("train", epilog=EXAMPLES)
@config_argument
@output_option(required=True)
@click.option("--prepared", metavar="FILE", help="Begin with this prepared model; - is standard input.")
@click.option("--checkpoints", metavar="DIR", callback=_path, help="Write a checkpoint here after each epoch.")
@click.option("--resume", metavar="PATH", callback=_path, help="Go on from the last checkpoint of a folder, or a file.")
@click.option("--metrics", metavar="FILE", callback=_path, help="Append records to this file, as lines of JSON.")
@click.option("--allow-config-change", is_flag=True, help="Resume with another config, target and quantize excepted.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Seed of all that is random, for train.seed."
)
@json_option
@set_option
@traceback_option
def command(config: str, seed: int | None, settings: tuple[str, ...], **asked: Any) -> int:  # noqa: ANN401 - click's
    """Prepare the model of CONFIG, calibrate it, train it on its grids, and write the trained model.

    With the same CONFIG the same bytes are written, whether the training was interrupted and resumed or not.
    """
    wanted = _Asked(**asked)
    check_one_result(wanted.output, as_json=wanted.as_json)
    _check_beginning(wanted, config)
    settled = read_config(config, settings)
    if seed is not None:
        settled = changed(settled, {"train.seed": seed}, "--seed")
    _check_written(wanted, _sources(config, settled, wanted))
    source = None if wanted.prepared is None else _prepared(wanted.prepared)
    with claimed_stdout() as stdout:
        trained = _train(settled, wanted, source)
        _write(trained, settled, wanted, stdout)
    return 0


def _check_beginning(asked: _Asked, config: str) -> None:
    if asked.prepared is not None and asked.resume is not None:
        msg = "--prepared and --resume: a checkpoint holds its model; leave --prepared out"
        raise UsageError(msg)
    if asked.prepared == STREAM == config:
        msg = "CONFIG and --prepared cannot both be standard input"
        raise UsageError(msg)
    if asked.allow_config_change and asked.resume is None:
        msg = "--allow-config-change says something about --resume only; leave it out"
        raise UsageError(msg)
    if asked.metrics is not None and _place(asked.metrics) == _place(asked.output):
        msg = f"--metrics and -o both name {asked.output!r}; the model would replace the metrics"
        raise UsageError(msg)


def _check_written(asked: _Asked, sources: list[Path]) -> None:
    """Refuse to write the model or the metrics over what the training reads, and over its checkpoints."""
    if asked.metrics is not None:
        check_is_no_source(asked.metrics, sources, "--metrics")
        _check_is_no_checkpoint(asked.metrics, asked, "--metrics")
    _check_is_no_checkpoint(Path(asked.output), asked, "-o")
    check_output(asked.output, sources=sources if asked.metrics is None else [*sources, asked.metrics])


def _check_is_no_checkpoint(path: Path, asked: _Asked, option: str) -> None:
    from qtool.workflows.checkpoints import is_checkpoint_name

    folders = [_place(folder) for folder in (asked.checkpoints, asked.resume) if folder is not None]
    if asked.resume is not None and not asked.resume.is_dir():
        folders.append(_place(asked.resume).parent)
    place = _place(path)
    if place in folders or (place.parent in folders and is_checkpoint_name(place.name)):
        msg = f"{option}: {str(path)!r} is where checkpoints of this training lie; name another file with {option}"
        raise UsageError(msg)


def _place(path: Path | str) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for links in a circle


def _sources(config: str, settled: Config, asked: _Asked) -> list[Path]:
    """Return the files that the command reads and its result must not replace."""
    given = [asked.resume, None if asked.prepared in (None, STREAM) else Path(str(asked.prepared))]
    return [*sources_of(config, settled), *(path for path in given if path is not None)]


def _prepared(file: str) -> Path | bytes:
    """Return the file that `--prepared` names, or its bytes; it must be one that can be trained."""
    source = read_input(file)
    stamp = check_loadable(read_qtool_file(source))
    if stamp.stage not in (Stage.PREPARED, Stage.TRAINED):
        msg = f"--prepared: {file!r} is {stamp.stage.value} already; train takes what `qtool prepare` wrote"
        raise UsageError(msg)
    return source


def _train(settled: Config, asked: _Asked, source: Path | bytes | None) -> Trained:
    from qtool.runtime.prepared import PreparedModel
    from qtool.workflows.load import read
    from qtool.workflows.train import Files, Listeners, train_from_config

    prepared = None if source is None else read(source)
    assert prepared is None or isinstance(prepared, PreparedModel)  # its stamp says so
    files = Files(resume=asked.resume, checkpoints=asked.checkpoints, metrics=asked.metrics)
    with training_progress() as (on_batch, on_record):
        return train_from_config(
            settled,
            prepared,
            files=files,
            listeners=Listeners(on_batch=on_batch, on_record=on_record),
            allow_config_change=asked.allow_config_change,
        )


def _write(trained: Trained, settled: Config, asked: _Asked, stdout: Stdout) -> None:
    write_output(asked.output, trained.data, stdout)
    facts = {
        "output": asked.output,
        "bytes": len(trained.data),
        "epoch": trained.epoch,
        "epochs": trained.epochs,
        "accuracy": trained.accuracy,
        **summary(trained.plan),
    }
    say(summary_lines(asked.output, len(trained.data), facts))
    measured = "" if trained.accuracy is None else f": accuracy {trained.accuracy:.3f} on data.evaluate, fake-quantized"
    say(f"  epoch {trained.epoch} of {trained.epochs}{measured}")
    if trained.accuracy is None and settled.data.evaluate is not None:
        say("note: data.evaluate has no labels, so no accuracy was measured")
    if asked.as_json:
        stdout.write_text(json_text(facts))
