"""`qtool export FILE`: an int8 program becomes a file for another runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qtool.cli.messages import say
from qtool.cli.options import file_argument, json_option, output_option, traceback_option
from qtool.cli.streams import STREAM, check_output, claimed_stdout, read_input, write_output
from qtool.cli.summary import check_one_result, json_text, megabytes
from qtool.cli.table import text_table
from qtool.errors import EXIT_FINDINGS
from qtool.exporters.formats import (
    NEWEST_OPSET,
    OLDEST_OPSET,
    OPSET,
    Format,
    check_engine_option,
    check_opset,
    check_packages,
)
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.workflows.export import check_is_converted, target_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtool.cli.streams import Stdout
    from qtool.exporters.formats import ExportedModel

MAX_DIFFERENCE = {Format.ONNX: 1, Format.PT2: 0, Format.TORCHSCRIPT: 1}
"""Most steps of its scale that an edge may differ by in ONNX Runtime and TorchScript; a .pt2 gives the same bits."""

EXAMPLES = """\b
Examples:
  qtool export int8.pt2 -o int8.onnx
  qtool export int8.pt2 -o int8.onnx --verify
  qtool export int8.pt2 --format pt2 -o plain.pt2
  qtool export int8.pt2 --format torchscript --engine qnnpack -o int8.pt
"""


@dataclass(frozen=True)
class _Request:
    """What is to be written; a path of None is standard output."""

    format: Format
    path: Path | None
    opset: int | None
    engine: str | None


@dataclass(frozen=True)
class _Exported:
    """The model as the bytes of its files, and how far it is from the program it was made of."""

    files: ExportedModel
    format: Format
    differences: Mapping[str, Mapping[str, int]] | None

    @property
    def is_wrong(self) -> bool:
        found = [number for column in (self.differences or {}).values() for number in column.values()]
        return max(found, default=0) > MAX_DIFFERENCE[self.format]


@click.command("export", epilog=EXAMPLES)
@file_argument
@click.option(
    "--format",
    "format_name",
    type=click.Choice([known.value for known in Format]),
    default=Format.ONNX.value,
    show_default=True,
    help="What to write.",
)
@output_option(required=True)
@click.option(
    "--opset", type=int, metavar="N", help=f"ONNX opset, {OLDEST_OPSET} to {NEWEST_OPSET}.  [default: {OPSET}]"
)
@click.option("--engine", metavar="NAME", help="Engine of TorchScript's weights.  [default: the stamped backend's]")
@click.option("--verify", is_flag=True, help="Run the result, and compare it with FILE node by node.")
@json_option
@traceback_option
def command(
    file: str, format_name: str, output: str, opset: int | None, engine: str | None, verify: bool, as_json: bool
) -> int:
    """Write the int8 program FILE as a file for another runtime: ONNX Runtime, or torch without qtool.

    With --verify the result is run: in ONNX Runtime, with its optimizations off and on, and in TorchScript every node
    may be 1 step of its scale off; a .pt2 must give the same bits. Otherwise the exit status is 1, and no file is
    written.
    """
    check_one_result(output, as_json=as_json)
    wanted = Format(format_name)
    check_opset(opset, wanted)
    check_engine_option(engine, wanted)
    sources = () if file == STREAM else (Path(file),)
    check_output(output, sources=sources)
    source = read_input(file)
    stamp = check_loadable(read_qtool_file(source))
    check_is_converted(stamp.stage, repr(file))
    check_packages(wanted, to_run=verify)
    note = target_note(stamp, wanted)
    if note is not None:
        say(note)
    with claimed_stdout() as stdout:
        request = _Request(wanted, None if output == STREAM else Path(output), opset, engine)
        exported = _export(source, request, verify=verify)
        _print_differences(exported, None if as_json or output == STREAM else stdout)
        if not exported.is_wrong:
            _write(output, exported.files, stdout, sources)
        if as_json:
            stdout.write_text(json_text(_facts(output, exported)))
        if exported.is_wrong:
            say("nothing was written: the exported model does not compute what FILE computes")
            return EXIT_FINDINGS
        say(_summary(output, exported))
    return 0


def _export(source: Path | bytes, request: _Request, *, verify: bool) -> _Exported:
    from qtool.runtime.converted import ConvertedModel
    from qtool.workflows.export import differences, exported_files
    from qtool.workflows.load import read

    converted = read(source)
    assert isinstance(converted, ConvertedModel)  # its stamp says so
    wanted, path, engine = request.format, request.path, request.engine
    files = exported_files(converted, wanted, path, opset=request.opset, engine=engine)
    return _Exported(files, wanted, differences(converted, files, wanted, path, engine=engine) if verify else None)


def _write(output: str, files: ExportedModel, stdout: Stdout, sources: Iterable[Path]) -> None:
    from qtool.workflows.atomic_file import write_together
    from qtool.workflows.export import paths_of

    if files.external is None:
        write_output(output, files.data, stdout)
        return
    paths = paths_of(files, Path(output))
    for path in paths:
        check_output(str(path), sources=sources)
    write_together(paths)


def _print_differences(exported: _Exported, stdout: Stdout | None) -> None:
    """Print the comparison as a result, or as a message where stdout is taken."""
    if exported.differences is None:
        return
    columns = exported.differences
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    if not names:
        say("verify: no node is int8, so there is nothing to compare")
        return
    first, *titles = {
        Format.ONNX: ["node", *(f"optimized {word}" for word in columns)],
        Format.PT2: ["output", "different values"],
        Format.TORCHSCRIPT: ["node", "steps"],
    }[exported.format]
    rows = [(name, *(str(column[name]) for column in columns.values())) for name in names]
    table = text_table((first, *titles), rows, right=set(titles))
    if stdout is None:
        say(table)
    else:
        stdout.write_text(table)


def _facts(output: str, exported: _Exported) -> dict[str, Any]:
    external = exported.files.external
    return {
        "output": None if exported.is_wrong else output,
        "format": exported.format.value,
        "bytes": len(exported.files.data),
        "external_bytes": None if external is None else len(external),
        "differences": exported.differences,
    }


def _summary(output: str, exported: _Exported) -> str:
    name = "standard output" if output == STREAM else output
    text = f"{name}: {exported.format.value}, {megabytes(len(exported.files.data))}"
    if exported.files.external is not None:
        text += f", and {megabytes(len(exported.files.external))} of weights in {output}.data"
    return text
