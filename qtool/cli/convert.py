"""`qtool convert FILE`: a prepared model becomes its int8 program."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtool.backends.target import backends_of, target, target_name
from qtool.cli.messages import say
from qtool.cli.options import backend_option, file_argument, json_option, output_option, traceback_option
from qtool.cli.streams import STREAM, check_output, claimed_stdout, read_input, write_output
from qtool.cli.summary import check_one_result, json_text, summary, summary_lines
from qtool.cli.table import text_table
from qtool.errors import EXIT_FINDINGS, UsageError
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.cli.streams import Stdout
    from qtool.runtime.converted import ConvertedModel

MAX_STEPS = 1
"""Most steps of its output scale that a node may differ by: two roundings of one value can end in neighbours."""

EXAMPLES = """\b
Examples:
  qtool convert prepared.pt2 -o int8.pt2
  qtool convert prepared.pt2 -o int8.pt2 --verify
  qtool prepare model.yaml -o - | qtool convert - -o int8.pt2
  qtool convert int8.pt2 --backend qnnpack -o int8-arm.pt2
"""


@dataclass(frozen=True)
class _Converted:
    """The int8 program as a file's bytes, what it is, and how far each node is from the fake-quantized model."""

    data: memoryview
    facts: Mapping[str, Any]
    steps: Mapping[str, int] | None

    @property
    def is_wrong(self) -> bool:
        return self.steps is not None and max(self.steps.values(), default=0) > MAX_STEPS


@click.command("convert", epilog=EXAMPLES)
@file_argument
@output_option(required=True)
@backend_option
@click.option("--allow-uncalibrated", is_flag=True, help="Keep nodes float whose observers saw no data.")
@click.option("--verify", is_flag=True, help="Compare each node with the prepared model's; 1 step is allowed.")
@json_option
@traceback_option
def command(file: str, output: str, backend: str | None, allow_uncalibrated: bool, verify: bool, as_json: bool) -> int:
    """Turn the prepared model FILE into its int8 program, or move a converted FILE to another backend.

    With --verify, every node's output is compared with the prepared model's in steps of its scale; if one differs by
    more than 1, the exit status is 1 and no file is written.

    A converted FILE is moved as it is: codes, scales and ranges stay. Nodes that the other backend would compute wrong
    are an error; convert the prepared file for it.
    """
    check_one_result(output, as_json=as_json)
    asked = None if backend is None else backends_of(backend)
    if asked is not None:
        target(asked)  # a wrong name is an error before the file is opened
    check_output(output, sources=() if file == STREAM else (Path(file),))
    source = read_input(file)
    stamp = check_loadable(read_qtool_file(source))
    is_moved = _check_stage(stamp.stage, file, backend, is_verified=verify)
    backends = asked or stamp.backends
    _check_engine(backends)
    with claimed_stdout() as stdout:
        converted = (
            _move(source, target_name(backends))
            if is_moved
            else _convert(source, backends, allow_uncalibrated=allow_uncalibrated, verify=verify)
        )
        _print_steps(converted, None if as_json or output == STREAM else stdout)
        if not converted.is_wrong:
            write_output(output, converted.data, stdout)
        if as_json:
            written = None if converted.is_wrong else output
            stdout.write_text(json_text({"output": written, "steps": converted.steps, **converted.facts}))
        if converted.is_wrong:
            say("nothing was written: the int8 program does not compute what the prepared model computes")
            return EXIT_FINDINGS
        say(summary_lines(output, len(converted.data), converted.facts))
    return 0


def _check_stage(stage: Stage, file: str, backend: str | None, *, is_verified: bool) -> bool:
    """Return whether the file is converted already, and so moved; refuse what can be neither converted nor moved."""
    if stage in (Stage.PREPARED, Stage.TRAINED):
        return False
    if stage is Stage.EXPORTED or backend is None:
        advice = "" if stage is Stage.EXPORTED else "; to move it to another backend, name that with --backend"
        msg = f"{file!r} is {stage.value} already; convert takes what `qtool prepare` wrote{advice}"
        raise UsageError(msg)
    if is_verified:
        msg = f"{file!r} is converted already: moving changes no number, and there is no prepared model to --verify by"
        raise UsageError(msg)
    return True


def _check_engine(backends: tuple[str, ...]) -> None:
    """Refuse before any work to convert for one engine that is not here; of several, those that are here are used."""
    from qtool.lowering.engine_switch import check_engine

    engine = target(backends).engine
    if engine is not None:
        check_engine(engine, option="--backend")


def _convert(source: Path | bytes, backends: tuple[str, ...], *, allow_uncalibrated: bool, verify: bool) -> _Converted:
    from qtool.runtime.prepared import PreparedModel
    from qtool.workflows.convert import convert, planned_for
    from qtool.workflows.load import read
    from qtool.workflows.verify import verify_target

    prepared = read(source)
    assert isinstance(prepared, PreparedModel)  # its stamp says so
    prepared = planned_for(prepared, ",".join(backends), allow_uncalibrated=allow_uncalibrated)
    converted = convert(prepared)
    if verify and any(not stamp.dtype.startswith(("float", "bfloat")) for stamp in prepared.stamp.inputs):
        say("note: --verify gives whole-number inputs 0 only; qtool.workflows.verify takes data of yours")
    steps = verify_target(prepared, converted) if verify else None
    data = _bytes_of(converted)
    return _Converted(data, {"bytes": len(data), **summary(converted.plan)}, steps)


def _move(source: Path | bytes, backend: str) -> _Converted:
    from qtool.runtime.converted import ConvertedModel
    from qtool.workflows.load import read
    from qtool.workflows.move import left_on_the_table, move

    converted = read(source)
    assert isinstance(converted, ConvertedModel)  # its stamp says so
    moved = move(converted, backend)
    if moved.reduced_in_vain:
        say(f"warning: {left_on_the_table(moved)}")
    data = _bytes_of(moved.model)
    report = {
        "before": moved.before,
        "after": moved.after,
        "num_nodes": moved.num_nodes,
        "reduced_in_vain": moved.reduced_in_vain,
    }
    return _Converted(data, {"bytes": len(data), **summary(moved.model.plan), "moved": report}, None)


def _bytes_of(model: ConvertedModel) -> memoryview:
    from qtool.workflows.save import save

    buffer = io.BytesIO()
    save(model, buffer)
    return buffer.getbuffer()


def _print_steps(converted: _Converted, stdout: Stdout | None) -> None:
    """Print the comparison as a result, or as a message where stdout is taken."""
    if converted.steps is None:
        return
    if not converted.steps:
        say("verify: no node is int8, so there is nothing to compare")
        return
    rows = [(name, str(steps)) for name, steps in converted.steps.items()]
    table = text_table(("node", "steps"), rows, right={"steps"})
    if stdout is None:
        say(table)
    else:
        stdout.write_text(table)
