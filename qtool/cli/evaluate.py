"""`qtool evaluate FILE --config CONFIG`: a quantized model measured against its float model."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from qtool.backends.engines import AUTO, OnMismatch, backend_of_engine
from qtool.backends.registry import backend as find_backend
from qtool.cli.config_file import read_config
from qtool.cli.messages import say
from qtool.cli.options import Settings, file_argument, json_option, seed_option, set_option, traceback_option
from qtool.cli.progress import progress
from qtool.cli.streams import STREAM, claimed_stdout, read_input
from qtool.cli.summary import json_text, megabytes
from qtool.cli.table import text_table
from qtool.errors import UsageError
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.types import Isa, Stage
from qtool.workflows.other_cpu import check_has, is_this_process, output_of

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.config.schema import Config
    from qtool.runtime.module import Override, RuntimeModel
    from qtool.runtime.prepared import PreparedModel
    from qtool.stamp.schema import Stamp
    from qtool.workflows.evaluate import Evaluation
    from qtool.workflows.saturation import ClippedNode

EXAMPLES = """\b
Examples:
  qtool evaluate int8.pt2 --config model.yaml
  qtool evaluate int8.pt2 --config model.yaml --engine qnnpack --json
  qtool evaluate int8.pt2 --config model.yaml --isa no-vnni
  qtool convert prepared.pt2 -o - | qtool evaluate - --config model.yaml
"""


@click.command("evaluate", epilog=EXAMPLES)
@file_argument
@click.option("--config", metavar="CONFIG", required=True, help="The config that FILE was prepared with.")
@click.option("--engine", metavar="E", help="Run on this engine; auto: each node on the fastest; else as FILE says.")
@click.option(
    "--on-mismatch",
    type=click.Choice([way.value for way in OnMismatch]),
    default=OnMismatch.ERROR.value,
    show_default=True,
    help="Nodes whose engine is missing or wrong: an error, another engine, or run them as asked and say so.",
)
@click.option(
    "--isa",
    type=click.Choice([Isa.NO_VNNI.value, Isa.VNNI.value]),
    help="Run FILE's engine as on such a CPU, unprotected: what is wrong there shows in the numbers.",
)
@click.option(
    "--saturation",
    is_flag=True,
    help="Also count the int16 sums that saturate on the data, node by node, on a CPU without VNNI (or as --isa says).",
)
@json_option
@seed_option
@set_option
@traceback_option
def command(
    file: str,
    config: str,
    engine: str | None,
    on_mismatch: str,
    isa: str | None,
    saturation: bool,
    as_json: bool,
    seed: int,
    settings: tuple[str, ...],
) -> int:
    """Measure FILE against its float model on CONFIG's `data.evaluate`: accuracy, agreement, SQNR, size.

    Agreement is the share of samples where both models choose the same class. SQNR is
    10 log10(sum of squares of the float outputs / sum of squares of the differences), over all outputs of all samples.
    """
    if engine not in (None, AUTO):
        backend_of_engine(str(engine))
    if file == STREAM == config:
        msg = "FILE and --config cannot both be standard input"
        raise UsageError(msg)
    asked = Isa.ANY if isa is None else Isa(isa)
    if not is_this_process(asked):
        return _on_other_cpu(asked)
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
        if isa is not None:
            engine, on_mismatch = _unprotected(stamp, asked, engine, on_mismatch)
        result, runs = _evaluate(source, settled, engine, on_mismatch, seed)
        clipped = _clipped(source, settled, stamp, engine, asked) if saturation else None
        measured = _Measured(result, runs, stamp.stage, facts.num_bytes, isa, clipped)
        stdout.write_text(json_text(measured.as_json()) if as_json else measured.as_table())
    return 0


def _on_other_cpu(isa: Isa) -> int:
    """Run the same command in a process that is held to that CPU, and pass on what it says."""
    with claimed_stdout() as stdout:
        status, output = output_of(_arguments(), isa)
        stdout.write(output)
    return status


def _arguments() -> list[str]:
    """Return the arguments of this command as they were given, defaults filled in."""
    context = click.get_current_context()
    words = ["evaluate"]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter, click.Argument):
            words += ["--", str(value)]
        elif value is True:
            words.insert(1, parameter.opts[0])
        elif value is not None and value is not False:
            for each in value if isinstance(value, tuple) else (value,):
                words[1:1] = [parameter.opts[0], str(each)]
    settings = context.find_object(Settings)
    return [words[0], *(["--traceback"] if settings and settings.show_traceback else []), *words[1:]]


def _unprotected(stamp: Stamp, isa: Isa, engine: str | None, on_mismatch: str) -> tuple[str | None, str]:
    """Return the engine and the way to go on that show what such a CPU would compute: the stamped engine, as it is.

    Raises:
        MissingIsaError: the engine does not find such a CPU.
    """
    if stamp.stage is not Stage.CONVERTED:
        msg = f"--isa {isa}: a {stamp.stage.value} file runs on no engine, so no CPU matters; convert it first"
        raise UsageError(msg)
    if engine != AUTO:
        backends = [find_backend(name) for name in stamp.backends] if engine is None else [backend_of_engine(engine)]
        record = next((each for each in backends if each.engine is not None), backends[0])
        check_has(isa, record)
        engine = record.engine or record.name
    return engine, OnMismatch.WARN if on_mismatch == OnMismatch.ERROR else on_mismatch


def _clipped(
    source: Path | bytes, settings: Config, stamp: Stamp, engine: str | None, isa: Isa
) -> tuple[ClippedNode, ...]:
    """Return what the int16 sums of the engine's kernels do on the data, on a CPU without VNNI if none is asked for."""
    from qtool.runtime.converted import ConvertedModel
    from qtool.workflows.load import read
    from qtool.workflows.saturation import clipped_from_config

    model = read(source)
    if not isinstance(model, ConvertedModel):
        msg = f"--saturation: a {stamp.stage.value} file runs on no kernel; convert it first"
        raise UsageError(msg)
    name = stamp.backends[0] if engine in (None, AUTO) else backend_of_engine(str(engine)).name
    return clipped_from_config(model, settings, find_backend(name), Isa.NO_VNNI if isa is Isa.ANY else isa)


@dataclass(frozen=True)
class _Runs:
    """Where a model ran; a prepared model runs on no engine.

    Attributes:
        engine: the engines, joined; None without one.
        num_nodes: number of convolutions and linear layers on each engine.
        overrides: those that ran as asked although their numbers may be wrong.
    """

    engine: str | None = None
    num_nodes: dict[str, int] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()

    @staticmethod
    def of(model: PreparedModel | RuntimeModel) -> _Runs:
        placement = getattr(model, "placement", None)
        if placement is None:
            return _Runs()
        counts = Counter(placed.engine for placed in placement.values())
        return _Runs(model.engine, dict(counts.most_common()), model.overrides)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Measured:
    """An evaluation and what it was of."""

    result: Evaluation
    runs: _Runs
    stage: Stage
    num_bytes: int
    isa: str | None
    clipped: tuple[ClippedNode, ...] | None

    def as_json(self) -> dict[str, Any]:
        """Infinity has no JSON: an exact result has `sqnr_db` null and `is_exact` true."""
        facts = dataclasses.asdict(self.result)
        is_exact = math.isinf(self.result.sqnr_db) and self.result.sqnr_db > 0
        finite = self.result.sqnr_db if math.isfinite(self.result.sqnr_db) else None
        named = {"engine": self.runs.engine, "isa": self.isa, "stage": self.stage.value, "file_bytes": self.num_bytes}
        where = {"engines": self.runs.num_nodes, "overrides": [dataclasses.asdict(o) for o in self.runs.overrides]}
        if self.clipped is not None:
            where["saturation"] = [{**dataclasses.asdict(node), "share": node.share} for node in self.clipped]
        return {**facts, **named, **where, "sqnr_db": finite, "is_exact": is_exact}

    def as_table(self) -> str:
        header = ("model", "accuracy", "agreement", "SQNR dB", "size")
        result = self.result
        kind = ", ".join(word for word in (self.stage.value, self.runs.engine, self.isa) if word)
        rows = [
            ("float", _share(result.float_accuracy), "-", "-", megabytes(result.float_bytes)),
            (
                kind,
                _share(result.accuracy),
                _share(result.agreement),
                _decibels(result.sqnr_db),
                megabytes(self.num_bytes),
            ),
        ]
        lines = [text_table(header, rows, right=set(header[1:]))]
        lines.append(f"{result.num_samples} samples, {result.num_labelled} labels")
        if len(self.runs.num_nodes) > 1:
            counts = (f"{count} on {name}" for name, count in self.runs.num_nodes.items())
            lines.append(f"convolutions and linear layers: {', '.join(counts)}")
        lines.extend(f"override: {o.node} ran on {o.engine} although {o.why}" for o in self.runs.overrides)
        if self.clipped is not None:
            lines += ["", self._clipped_table()]
        return "\n".join(lines)

    def _clipped_table(self) -> str:
        if not self.clipped:
            return "saturation: no layer can saturate there"
        header = ("layer that can saturate", "pair sums", "clipped", "share", "outputs off")
        rows = [
            (c.node, str(c.num_sums), str(c.num_clipped), f"{c.share:.3%}", f"{c.num_wrong} of {c.num_outputs}")
            for c in self.clipped
        ]
        return text_table(header, rows, right=set(header[1:]))


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


def _evaluate(
    source: Path | bytes, settings: Config, engine: str | None, on_mismatch: str, seed: int
) -> tuple[Evaluation, _Runs]:
    """Return the evaluation, and where it was made."""
    from qtool.workflows.evaluate import evaluate_from_config
    from qtool.workflows.load import load
    from qtool.workflows.seed import seed_everything

    seed_everything(seed)
    model = load(source, engine=engine, on_mismatch=on_mismatch)
    _tell_uncalibrated(model)
    with progress("evaluate") as on_batch:
        return evaluate_from_config(model, settings, on_batch=on_batch), _Runs.of(model)
