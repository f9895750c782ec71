"""Options and arguments that several commands share, each spelled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from qtool.types import Isa

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Settings:
    """What holds for the whole process; filled while the command line is parsed."""

    show_traceback: bool = False


def _remember_traceback(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).show_traceback = True


traceback_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    callback=_remember_traceback,
    help="Show the Python traceback of an error.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the random numbers of model code (random_init, dropout ...).",
)
backend_option = click.option("--backend", metavar="B", help="Name of a backend; `qtool backends` lists them.")
isa_option = click.option("--isa", type=click.Choice([isa.value for isa in Isa]), help="The CPU the file is to run on.")
set_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Replace a value of the config, such as target.isa=vnni; VALUE is YAML. Repeatable.",
)
file_argument = click.argument("file", metavar="FILE")
config_argument = click.argument("config", metavar="CONFIG")


def output_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Return the option `-o FILE`, where `-` is stdout."""
    text = "Where the model goes; - is standard output."
    return click.option("-o", "--output", metavar="FILE", required=required, help=text)
