"""`qtool evaluate FILE --config CONFIG`: a quantized model measured against its float model."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from qtool.backends.registry import BACKENDS
from qtool.backends.registry import backend as find_backend
from qtool.cli.config_file import read_config
from qtool.cli.messages import say
from qtool.cli.options import file_argument, json_option, seed_option, set_option, traceback_option
from qtool.cli.progress import progress
from qtool.cli.streams import STREAM, claimed_stdout, read_input
from qtool.cli.summary import json_text, megabytes
from qtool.cli.table import text_table
from qtool.errors import UsageError, nearest
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.types import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.config.schema import Config
    from qtool.runtime.module import RuntimeModel
    from qtool.runtime.prepared import PreparedModel
    from qtool.stamp.schema import Stamp
    from qtool.workflows.evaluate import Evaluation

EXAMPLES = """\b
Examples:
  qtool evaluate int8.pt2 --config model.yaml
  qtool evaluate int8.pt2 --config model.yaml --engine qnnpack --json
  qtool convert prepared.pt2 -o - | qtool evaluate - --config model.yaml
"""


@click.command("evaluate", epilog=EXAMPLES)
@file_argument
@click.option("--config", metavar="CONFIG", required=True, help="The config that FILE was prepared with.")
@click.option("--engine", metavar="E", help="Run on this engine; FILE's own backend if left out.")
@json_option
@seed_option
@set_option
@traceback_option
def command(file: str, config: str, engine: str | None, as_json: bool, seed: int, settings: tuple[str, ...]) -> int:
    """Measure FILE against its float model on CONFIG's `data.evaluate`: accuracy, agreement, SQNR, size.

    Agreement is the share of samples where both models choose the same class. SQNR is
    10 log10(sum of squares of the float outputs / sum of squares of the differences), over all outputs of all samples.
    """
    _check_engine_name(engine)
    if file == STREAM == config:
        msg = "FILE and --config cannot both be standard input"
        raise UsageError(msg)
    settled = read_config(config, settings)
    source = read_input(file)
    facts = read_qtool_file(source)
    stamp = check_loadable(facts)
    if engine is not None and stamp.stage is not Stage.CONVERTED:
        msg = (
            f"--engine {engine}: a {stamp.stage.value} file runs on no engine; convert it first, or leave --engine out"
        )
        raise UsageError(msg)
    _tell_differences(stamp, settled)
    with claimed_stdout() as stdout:
        measured = _Measured(*_evaluate(source, stamp, settled, engine, seed), stamp.stage, facts.num_bytes)
        stdout.write_text(json_text(measured.as_json()) if as_json else measured.as_table())
    return 0


@dataclass(frozen=True)
class _Measured:
    """An evaluation and what it was of; a prepared model runs on no engine."""

    result: Evaluation
    engine: str | None
    stage: Stage
    num_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Infinity has no JSON: an exact result has `sqnr_db` null and `is_exact` true."""
        facts = dataclasses.asdict(self.result)
        is_exact = math.isinf(self.result.sqnr_db) and self.result.sqnr_db > 0
        finite = self.result.sqnr_db if math.isfinite(self.result.sqnr_db) else None
        named = {"engine": self.engine, "stage": self.stage.value, "file_bytes": self.num_bytes}
        return {**facts, **named, "sqnr_db": finite, "is_exact": is_exact}

    def as_table(self) -> str:
        header = ("model", "accuracy", "agreement", "SQNR dB", "size")
        result = self.result
        rows = [
            ("float", _share(result.float_accuracy), "-", "-", megabytes(result.float_bytes)),
            (
                self.stage.value if self.engine is None else f"{self.stage.value}, {self.engine}",
                _share(result.accuracy),
                _share(result.agreement),
                _decibels(result.sqnr_db),
                megabytes(self.num_bytes),
            ),
        ]
        samples = f"{result.num_samples} samples, {result.num_labelled} labels"
        return f"{text_table(header, rows, right=set(header[1:]))}\n{samples}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _decibels(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.2f}"


def _tell_differences(stamp: Stamp, settings: Config) -> None:
    """Say where the config differs from the one the file was prepared with: it may be meant, it may be a mistake."""
    preprocess = getattr(settings.data.evaluate, "preprocess", None)
    if preprocess is not None and stamp.preprocessing is not None:
        given, calibrated = preprocess.model_dump(mode="json"), stamp.preprocessing
        differing = [
            f"{key} {given.get(key)} (calibrated with {calibrated.get(key)})"
            for key in sorted({*given, *calibrated})
            if given.get(key) != calibrated.get(key)
        ]
        if differing:
            say(f"note: pictures are preprocessed in another way than for calibration: {', '.join(differing)}")
    if stamp.config_digest != settings.digest():
        say("note: the file was prepared with another config; it is measured against the float model of this one")


def _tell_uncalibrated(model: PreparedModel | RuntimeModel) -> None:
    """Say how much of a prepared model is float still: its numbers would look far too good."""
    missing: tuple[str, ...] = getattr(model, "uncalibrated", tuple)()
    if missing:
        say(f"note: not calibrated, so measured in float: {len(missing)} of the model's activations")


def _check_engine_name(engine: str | None) -> None:
    names = [record.engine for record in BACKENDS if record.engine is not None]
    if engine is not None and engine not in names:
        msg = f"engine {engine!r} is not known{nearest(engine, names) or '.'} Use one of: {', '.join(names)}."
        raise UsageError(msg)


def _evaluate(
    source: Path | bytes, stamp: Stamp, settings: Config, engine: str | None, seed: int
) -> tuple[Evaluation, str | None]:
    """Return the evaluation, and the engine it was made on."""
    from qtool.lowering.engine_switch import check_engine

    needed = engine or find_backend(stamp.backends[0]).engine
    if stamp.stage is Stage.CONVERTED and needed is not None:
        check_engine(needed, option="--engine")
    from qtool.workflows.evaluate import evaluate_from_config
    from qtool.workflows.load import load
    from qtool.workflows.seed import seed_everything

    seed_everything(seed)
    model = load(source, engine=engine)
    _tell_uncalibrated(model)
    with progress("evaluate") as on_batch:
        return evaluate_from_config(model, settings, on_batch=on_batch), getattr(model, "engine", None)
