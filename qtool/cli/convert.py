"""`qtool convert FILE`: a prepared model becomes its int8 program."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtool.backends.registry import backend as find_backend
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

    from qtool.backends.record import Backend
    from qtool.cli.streams import Stdout

MAX_STEPS = 1
"""Most steps of its output scale that a node may differ by: two roundings of one value can end in neighbours."""

EXAMPLES = """\b
Examples:
  qtool convert prepared.pt2 -o int8.pt2
  qtool convert prepared.pt2 -o int8.pt2 --verify
  qtool prepare model.yaml -o - | qtool convert - -o int8.pt2
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
    """Turn the prepared model FILE into its int8 program.

    With --verify, every node's output is compared with the prepared model's in steps of its scale; if one differs by
    more than 1, the exit status is 1 and no file is written.
    """
    check_one_result(output, as_json=as_json)
    asked = None if backend is None else find_backend(backend)
    check_output(output, sources=() if file == STREAM else (Path(file),))
    source = read_input(file)
    stamp = check_loadable(read_qtool_file(source))
    if stamp.stage not in (Stage.PREPARED, Stage.TRAINED):
        msg = f"{file!r} is {stamp.stage.value} already; convert takes what `qtool prepare` wrote"
        raise UsageError(msg)
    target = asked or find_backend(stamp.backends[0])
    with claimed_stdout() as stdout:
        converted = _convert(source, target, allow_uncalibrated=allow_uncalibrated, verify=verify)
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


def _convert(source: Path | bytes, target: Backend, *, allow_uncalibrated: bool, verify: bool) -> _Converted:
    from qtool.lowering.engine_switch import check_engine

    if target.engine is not None:
        check_engine(target.engine, option="--backend")
    from qtool.runtime.prepared import PreparedModel
    from qtool.workflows.convert import convert, planned_for
    from qtool.workflows.load import read
    from qtool.workflows.save import save
    from qtool.workflows.verify import verify as verify_steps

    prepared = read(source)
    assert isinstance(prepared, PreparedModel)  # its stamp says so
    prepared = planned_for(prepared, target.name, allow_uncalibrated=allow_uncalibrated)
    converted = convert(prepared)
    if verify and any(not stamp.dtype.startswith(("float", "bfloat")) for stamp in prepared.stamp.inputs):
        say("note: --verify gives whole-number inputs 0 only; qtool.workflows.verify takes data of yours")
    steps = verify_steps(prepared, converted, use_reference=target.engine is None) if verify else None
    buffer = io.BytesIO()
    save(converted, buffer)
    data = buffer.getbuffer()
    return _Converted(data, {"bytes": len(data), **summary(converted.plan)}, steps)


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
