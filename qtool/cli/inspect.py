"""`qtool inspect FILE`: what a file was made for, and what does not fit. Torch-free."""

from __future__ import annotations

import click

from qtool.cli.options import backend_option, file_argument, isa_option, json_option, traceback_option
from qtool.cli.streams import claimed_stdout, read_input
from qtool.cli.terminal import has_color, width_of
from qtool.errors import EXIT_FINDINGS
from qtool.inspection.asked import FAIL_ON
from qtool.inspection.codes import Severity
from qtool.inspection.explain import explained
from qtool.inspection.findings import Outcome
from qtool.report.json_report import to_json
from qtool.report.text import render_text
from qtool.workflows.inspect import inspect

EXAMPLES = """\b
Examples:
  qtool inspect int8.pt2
  qtool inspect int8.pt2 --backend onednn --isa no-vnni
  qtool inspect int8.pt2 --host --fail-on warning
  qtool inspect --explain QT303
  qtool inspect int8.pt2 --json | jq .findings
"""


def _explain(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    with claimed_stdout() as stdout:
        stdout.write_text(explained(value))
    context.exit()


@click.command("inspect", epilog=EXAMPLES)
@file_argument
@backend_option
@isa_option
@click.option("--engine", metavar="E", help="Judge FILE for this torch engine, which must be on this machine.")
@click.option("--host", "on_host", is_flag=True, help="Judge FILE for this machine: its CPU and its engines.")
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in FAIL_ON]),
    default=Severity.ERROR.value,
    show_default=True,
    help="The mildest finding that ends with status 1.",
)
@click.option(
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Print cause, example and remedy of a finding, such as QT303, and stop.",
)
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show every node and every range.")
@traceback_option
def command(
    file: str,
    backend: str | None,
    isa: str | None,
    engine: str | None,
    on_host: bool,
    fail_on: str,
    as_json: bool,
    verbose: bool,
) -> int:
    """Show what FILE was made for, node by node, and what does not fit the asked target.

    Exit status 1 if something does not fit, or if FILE says nothing about itself or is not quantized. Nothing in FILE
    is executed.
    """
    report = inspect(read_input(file), backend=backend, isa=isa, engine=engine, on_host=on_host, fail_on=fail_on)
    with claimed_stdout() as stdout:
        if as_json:
            stdout.write_text(to_json(report))
        else:
            width, color = width_of(stdout), has_color(stdout)
            stdout.write_text(render_text(report, verbose=verbose, width=width, color=color))
    return 0 if report.outcome is Outcome.OK else EXIT_FINDINGS
