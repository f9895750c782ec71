"""The command `qtool`: finds the command asked for, runs it, and turns what happens into an exit status."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from qtool._version import __version__
from qtool.cli.failure import report_failure
from qtool.cli.groups import NearestGroup
from qtool.cli.messages import warnings_said
from qtool.cli.options import Settings, traceback_option
from qtool.cli.signals import raised_signals
from qtool.cli.streams import open_missing_descriptors, retire_stdout

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "init": "Write a commented config to start from.",
    "config": "Check a config, or show what it comes to; the schema for editors.",
    "prepare": "Plan a model for a backend, insert fake-quantize modules, calibrate.",
    "train": "Train a prepared model on its grids, with checkpoints to resume from.",
    "convert": "Turn a prepared model into its int8 program.",
    "export": "Write an int8 program as a file for another runtime.",
    "bench": "Measure memory and time of a training step, float beside each memory mode.",
    "evaluate": "Measure a quantized model against its float model.",
    "inspect": "Show what a file was made for, and what does not fit its target.",
    "backends": "Show the engines and CPU features of this machine, and the catalog.",
}
"""Every command in the order of work, with its short help; `NAME` is the object `command` of `qtool.cli.NAME`."""

COMPLETION_VARIABLE = "_QTOOL_COMPLETE"


class CommandTable(NearestGroup):
    """A group that imports a command when it runs, and lists all of them without importing one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"qtool.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="qtool %(version)s")
@traceback_option
def cli() -> None:
    """Take a trained float PyTorch model to int8 for a named backend.

    Results go to stdout, everything else to stderr; `-` as a FILE is a stream. Exit status: 0 done, 1 findings,
    2 usage or config, 3 the model cannot be processed, 4 a dependency or engine is missing, 70 a fault in qtool.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; nothing is raised, nothing printed but messages and results.

    Example:
        >>> run(["--version"])
        qtool 0.1.0
        0
    """
    settings = Settings()
    try:
        with raised_signals(), warnings_said(), cli.make_context("qtool", list(arguments), obj=settings) as context:
            return int(cli.invoke(context) or 0)
    except BaseException as error:
        return report_failure(error, arguments, show_traceback=settings.show_traceback)


def main() -> int:
    """Run the process's command line: the entry point of the console script."""
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "qtool", COMPLETION_VARIABLE, instruction)
    open_missing_descriptors()
    status = run(sys.argv[1:])
    retire_stdout()
    return status
