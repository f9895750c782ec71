"""`qtool inspect FILE`: what a file was made for, and what does not fit. Torch-free."""

from __future__ import annotations

import click

from qtool.cli.options import backend_option, file_argument, isa_option, json_option, traceback_option
from qtool.cli.streams import claimed_stdout, read_input
from qtool.cli.terminal import has_color, width_of
from qtool.errors import EXIT_FINDINGS
from qtool.inspection.findings import Outcome
from qtool.report.json_report import to_json
from qtool.report.text import render_text
from qtool.workflows.inspect import inspect

EXAMPLES = """\b
Examples:
  qtool inspect int8.pt2
  qtool inspect int8.pt2 --backend onednn --isa no-vnni
  qtool inspect int8.pt2 --json | jq .findings
"""


@click.command("inspect", epilog=EXAMPLES)
@file_argument
@backend_option
@isa_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show every node and every range.")
@traceback_option
def command(file: str, backend: str | None, isa: str | None, as_json: bool, verbose: bool) -> int:
    """Show what FILE was made for, node by node, and what does not fit the asked target.

    Exit status 1 if something does not fit, or if FILE says nothing about itself. Nothing in FILE is executed.
    """
    report = inspect(read_input(file), backend=backend, isa=isa)
    with claimed_stdout() as stdout:
        if as_json:
            stdout.write_text(to_json(report))
        else:
            width, color = width_of(stdout), has_color(stdout)
            stdout.write_text(render_text(report, verbose=verbose, width=width, color=color))
    return 0 if report.outcome is Outcome.OK else EXIT_FINDINGS
