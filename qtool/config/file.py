"""The text of a config file: read within bounds, decoded, or a located error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.config.document import location
from qtool.config.source import mark_of_position
from qtool.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 18
"""Size of the largest config; chosen: a thousand overrides take about 60 kB."""


def read_bytes(path: Path, place: str) -> bytes:
    """Return a file's bytes, at most one more than a config may have.

    Args:
        path: the file.
        place: what a message begins with: the file's name, or the place that names it.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        problem = f"found no such file{_similar_file(path)}"
        cause: Exception = error
    except IsADirectoryError as error:
        problem, cause = "found a folder; allowed: a file", error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        problem, cause = f"cannot be read: {getattr(error, 'strerror', None) or error}", error
    raise ConfigError([f"{place}: {problem}"]) from cause


def decoded(content: bytes, name: str) -> str:
    """Return the text in a file's bytes: UTF-8, with or without byte order mark.

    Raises:
        ConfigError: there are too many, or they are no UTF-8; located in the file `name`.
    """
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{name}: found more than {MAX_BYTES} bytes; allowed: a config, which is YAML text"])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()  # not `content`: this is without the byte order mark
        place = location(name, mark_of_position(before, len(before)))
        problem = f"found the byte 0x{error.object[error.start]:02x}, which is not UTF-8; allowed: YAML text in UTF-8"
        raise ConfigError([f"{place}: {problem}"]) from error


def _similar_file(path: Path) -> str:
    """Return the hint at a YAML file beside `path` that has nearly its name."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return f"; nor is there a folder {str(path.parent)!r}"
    return nearest(path.name, names)
