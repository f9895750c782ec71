"""`qtool init MODEL`: a config to start from. Torch-free."""

from __future__ import annotations

from pathlib import Path

import click

from qtool.cli.messages import say
from qtool.cli.options import traceback_option
from qtool.cli.streams import STREAM, check_output, claimed_stdout, write_output
from qtool.config.starter import starting_config
from qtool.errors import UsageError

EXAMPLES = """\b
Examples:
  qtool init resnet18 -o model.yaml
  qtool init mypackage.nets:SmallNet | less
"""


@click.command("init", epilog=EXAMPLES)
@click.argument("model", metavar="MODEL")
@click.option(
    "-o", "--output", metavar="FILE", default=STREAM, help="Where the config goes; standard output if left out."
)
@traceback_option
def command(model: str, output: str) -> int:
    """Write a commented config to start from, for MODEL: package.module:attribute, or the name of a torchvision model.

    MODEL is not imported. A FILE that is there already is never written over.
    """
    if output != STREAM:
        _check_is_new(output)
        check_output(output)
    text = starting_config(model)
    with claimed_stdout() as stdout:
        if output == STREAM:
            stdout.write_text(text)
        else:
            write_output(output, text.encode(), stdout)
            say(f"{output}: written; next: qtool config check {output}")
    return 0


def _check_is_new(file: str) -> None:
    try:
        is_there = Path(file).exists()
    except (OSError, ValueError):
        is_there = False  # no file can have that name; writing it will say so
    if is_there:
        msg = f"-o: {file!r} is there already; name another file, or remove it"
        raise UsageError(msg)
