"""The argument CONFIG: a YAML file, or `-` for stdin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qtool.cli.streams import STREAM, read_input
from qtool.config.load import load_config, parse_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.config.schema import Config


def read_config(file: str, settings: Sequence[str] = ()) -> Config:
    """Return the settled config; paths in one from stdin are relative to the current folder.

    Args:
        file: what CONFIG names.
        settings: what `--set` gives.

    Raises:
        ConfigError: it cannot be read or is wrong.
        UsageError: nothing comes from stdin.
    """
    if file != STREAM:
        return load_config(Path(file), settings)
    content = read_input(STREAM)
    assert isinstance(content, bytes)
    return parse_config(content, name="stdin", base=Path.cwd(), settings=settings)
