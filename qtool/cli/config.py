"""`qtool config check|show|schema`: a config looked at, and nothing run. Torch-free."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from qtool.cli.config_file import read_config
from qtool.cli.groups import NearestGroup
from qtool.cli.messages import harmless
from qtool.cli.options import json_option, set_option, traceback_option
from qtool.cli.streams import STREAM, claimed_stdout
from qtool.cli.summary import json_text
from qtool.config.document import dotted
from qtool.config.json_schema import config_schema
from qtool.config.yaml_text import leaves, yaml_text

if TYPE_CHECKING:
    from qtool.config.document import KeyPath
    from qtool.config.schema import Config

EXAMPLES = """\b
Examples:
  qtool config check model.yaml
  qtool config show model.yaml --origin
  qtool config show model.yaml --set target.isa=vnni
  qtool config schema > qtool.schema.json
"""

DEFAULT = "default"
"""The origin of a value that nobody gave."""

config_file_argument = click.argument("file", metavar="FILE")


@click.group("config", cls=NearestGroup, epilog=EXAMPLES)
@traceback_option
def command() -> None:
    """Check or show a config without running anything."""


@command.command("check", short_help="Report everything that is wrong with a config.")
@config_file_argument
@set_option
@traceback_option
def check(file: str, settings: tuple[str, ...]) -> int:
    """Check FILE and the files that it extends, and report everything that is wrong.

    Whether the model, weights and pictures are there is not looked at. Exit status 2 if something is wrong.
    """
    read_config(file, settings)
    with claimed_stdout() as stdout:
        stdout.write_text(f"{'stdin' if file == STREAM else harmless(file)}: ok")
    return 0


@command.command("show", short_help="Print a settled config, and where its values come from.")
@config_file_argument
@click.option("--origin", is_flag=True, help="After each value: file:line:column, --set #n, or default.")
@json_option
@set_option
@traceback_option
def show(file: str, origin: bool, as_json: bool, settings: tuple[str, ...]) -> int:
    """Print the settled config of FILE: what it extends merged, what is not said filled in.

    It is YAML again; relative paths in it start from FILE's folder.
    """
    config = read_config(file, settings)
    tree: dict[str, Any] = config.model_dump(mode="json")
    with claimed_stdout() as stdout:
        if as_json:
            origins = {dotted(path): origin_of(config, path) for path, _ in leaves(tree)}
            stdout.write_text(json_text({"config": tree, **({"origin": origins} if origin else {})}))
        elif origin:
            stdout.write_text(yaml_text(tree, lambda path: harmless(origin_of(config, path))))
        else:
            stdout.write_text(yaml_text(tree))
    return 0


@command.command("schema", short_help="Print the JSON schema, for editors.")
@traceback_option
def schema() -> int:
    """Print the JSON schema (draft 2020-12) of a config, for editors."""
    with claimed_stdout() as stdout:
        stdout.write_text(json.dumps(config_schema(), indent=2))
    return 0


def origin_of(config: Config, path: KeyPath) -> str:
    """Return where a single value of the settled config comes from.

    Example:
        >>> origin_of(config, ("target", "backend")), origin_of(config, ("target", "isa"))
        ('model.yaml:7:12', 'default')
    """
    return config.document.locate(path) if path in config.document.marks else DEFAULT
