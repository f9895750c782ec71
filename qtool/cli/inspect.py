"""`qtool inspect FILE`: what a file was made for, and what does not fit; two FILEs are compared. Torch-free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from qtool.cli.options import backend_option, isa_option, json_option, traceback_option
from qtool.cli.streams import STREAM, check_is_no_source, claimed_stdout, read_input
from qtool.cli.terminal import has_color, width_of
from qtool.errors import EXIT_FINDINGS, UsageError
from qtool.inspection.asked import FAIL_ON
from qtool.inspection.codes import Severity
from qtool.inspection.explain import explained
from qtool.inspection.findings import Outcome
from qtool.report.forms import Form, written
from qtool.report.look import Look
from qtool.workflows.atomic_file import check_writable, write_atomically
from qtool.workflows.inspect import inspect

if TYPE_CHECKING:
    from qtool.cli.streams import Stdout
    from qtool.inspection.compare import Comparison
    from qtool.inspection.findings import Report

EXAMPLES = """\b
Examples:
  qtool inspect int8.pt2
  qtool inspect int8.pt2 --backend onednn --isa no-vnni
  qtool inspect int8.pt2 --host --fail-on warning
  qtool inspect --explain QT303
  qtool inspect int8.pt2 --json | jq .findings
  qtool inspect int8.pt2 --html report.html
  qtool inspect before.pt2 after.pt2 --markdown
"""


class _Asked(TypedDict):
    """The options that say what a file is judged for."""

    backend: str | None
    isa: str | None
    engine: str | None
    on_host: bool
    fail_on: str


def _explain(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    with claimed_stdout() as stdout:
        stdout.write_text(explained(value))
    context.exit()


@click.command("inspect", epilog=EXAMPLES)
@click.argument("file", metavar="FILE")
@click.argument("other", metavar="[FILE2]", required=False)
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
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the result as Markdown, for a comment in a CI.")
@click.option("--html", "page", metavar="PAGE", help="Write a page for a browser as well; - is standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show every node and every range.")
@traceback_option
def command(
    file: str,
    other: str | None,
    as_json: bool,
    as_markdown: bool,
    page: str | None,
    verbose: bool,
    **asked: Unpack[_Asked],
) -> int:
    """Show what FILE was made for, node by node, and what does not fit the asked target; compare it with FILE2.

    Exit status 1 if something does not fit, or if FILE says nothing about itself or is not quantized; of two files, if
    they differ in more than their form, or if that cannot be told. Nothing in a file is executed.
    """
    form = _form(as_json=as_json, as_markdown=as_markdown, page=page)
    _check_page(page, [file, *([] if other is None else [other])])
    first = read_input(file)
    found: Report | Comparison
    if other is None:
        found = inspect(first, **asked, histograms=form in (Form.JSON, Form.HTML) or page is not None)
        is_fine = found.outcome is Outcome.OK
    else:
        from qtool.inspection.compare import Sameness
        from qtool.workflows.compare import compare

        found = compare(first, read_input(other), **asked)
        is_fine = found.sameness is Sameness.EQUAL
    with claimed_stdout() as stdout:
        _write(found, form, page, stdout, verbose=verbose)
    return 0 if is_fine else EXIT_FINDINGS


def _form(*, as_json: bool, as_markdown: bool, page: str | None) -> Form:
    """Return what standard output is to hold."""
    options = {
        Form.JSON: ("--json", as_json),
        Form.MARKDOWN: ("--markdown", as_markdown),
        Form.HTML: ("--html -", page == STREAM),
    }
    asked = {form: name for form, (name, is_asked) in options.items() if is_asked}
    if len(asked) > 1:
        msg = f"{' and '.join(asked.values())} would all go to standard output; leave all but one out"
        raise UsageError(msg)
    return next(iter(asked), Form.TEXT)


def _check_page(page: str | None, files: list[str]) -> None:
    """Find out before any work whether the page could be written, and that no two inputs are the same stream."""
    if files.count(STREAM) > 1:
        msg = "both files are '-', and standard input can be read only once; name one of them"
        raise UsageError(msg)
    if page is None or page == STREAM:
        return
    if not page:
        msg = "--html: the name of the file is empty; name one, or - for standard output"
        raise UsageError(msg)
    check_is_no_source(Path(page), [Path(file) for file in files if file != STREAM], "--html")
    check_writable(Path(page))


def _write(found: Report | Comparison, form: Form, page: str | None, stdout: Stdout, *, verbose: bool) -> None:
    """Write the page first: where that fails, standard output stays empty."""
    if page is not None and page != STREAM:
        write_atomically(Path(page), written(found, Form.HTML).encode())
    look = Look(verbose=verbose, width=width_of(stdout), color=has_color(stdout))
    stdout.write_text(written(found, form, look))
