"""A config as plain data that knows where each part stands, and the faults found in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from qtool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"
KeyPath: TypeAlias = "tuple[str | int, ...]"

EXTENDS = "extends"
"""The key that names the file whose settings a config starts from."""
MAX_DEPTH = 32
"""Deepest nesting; chosen: the schema is 5 deep, `kwargs` may add their own."""
INT_LIMITS = (-(1 << 63), (1 << 63) - 1)
"""Integers must fit 64 bits, as sizes, counts and seeds do wherever they are used."""


@dataclass(frozen=True)
class Mark:
    """A place in a text.

    Attributes:
        line: counted from 1; 0 where the place has no lines, such as `--set #1`.
        column: counted from 1.
        file: what messages call the text; empty for the document's own file.
    """

    line: int
    column: int
    file: str = ""


@dataclass(frozen=True)
class Marks:
    """Where a value stands, and the key it belongs to; list items and the whole document have no key."""

    key: Mark | None
    value: Mark


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One fault of a config.

    Attributes:
        path: the key path it is about; empty for the whole document.
        text: the fault in words: `found ...; allowed: ...`.
        at_key: the key at `path` is at fault, not its value.
        mark: the place, where it is not that of `path`.
    """

    path: KeyPath
    text: str
    at_key: bool = False
    mark: Mark | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    r"""A config as plain data that knows where each part stands.

    Attributes:
        name: the file as the user named it, or a word for a config that comes from no file.
        tree: dicts with text keys, lists, text, numbers, true/false and None.
        marks: the place of each key path; empty for a config that comes from no file.
        problems: faults of single values and keys; what is at fault is None, or left out, in the tree.
        bases: the files that it extends, nearest first.

    Example:
        >>> document = parse_yaml("target:\n  backend: fbgemm\n", "c.yaml")
        >>> document.tree, document.locate(("target", "backend"))
        ({'target': {'backend': 'fbgemm'}}, 'c.yaml:2:12')
    """

    name: str
    tree: Tree
    marks: Mapping[KeyPath, Marks] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    bases: tuple[Path, ...] = ()

    def mark(self, path: KeyPath, *, at_key: bool = False) -> Mark | None:
        """Return the place of the value (or key) at `path`; that of the nearest parent's key where it is not there."""
        marks = self.marks.get(path)
        if marks is not None:
            return marks.key if at_key and marks.key else marks.value
        return self.mark(path[:-1], at_key=True) if path else None

    def value(self, path: KeyPath) -> Tree:
        """Return what stands at `path`, None where nothing does."""
        tree = self.tree
        for part in path:
            if isinstance(tree, dict) and isinstance(part, str):
                tree = tree.get(part)
            elif isinstance(tree, list) and isinstance(part, int) and part < len(tree):
                tree = tree[part]
            else:
                return None
        return tree

    def locate(self, path: KeyPath) -> str:
        """Return `name:line:column` of the value at `path`, or just the name for a config that comes from no file."""
        return location(self.name, self.mark(path))

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Return the error that states all `problems`, file by file, in the order of the text."""
        placed = [(problem.mark or self.mark(problem.path, at_key=problem.at_key), problem) for problem in problems]
        placed.sort(key=lambda pair: (pair[0].file, pair[0].line, pair[0].column) if pair[0] else ("", 0, 0))
        return ConfigError(
            ": ".join(filter(None, (location(self.name, mark), dotted(problem.path), problem.text)))
            for mark, problem in placed
        )


def location(name: str, mark: Mark | None) -> str:
    """Return `name:line:column`, or the name where there is no mark; a mark's own file goes before `name`.

    Example:
        >>> location("c.yaml", Mark(2, 12)), location("c.yaml", Mark(0, 0, "--set #1"))
        ('c.yaml:2:12', '--set #1')
    """
    if mark is None:
        return name
    file = mark.file or name
    return f"{file}:{mark.line}:{mark.column}" if mark.line else file


def dotted(path: KeyPath) -> str:
    """Return a key path in words: `("quantize", "skip", 0)` is `quantize.skip.0`."""
    return ".".join(_one_line(str(part)) for part in path)


def key_path(text: str) -> KeyPath:
    """Return the key path that `text` is the words for: `quantize.skip.0` is `("quantize", "skip", 0)`."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split(".") if part)


def fault_of(value: Tree) -> str | None:
    """Return what is wrong with a single value, in words, or None.

    Example:
        >>> fault_of(1 << 64), fault_of("fbgemm")
        ('found an integer of more than 64 bits; allowed: integers within 64 bits', None)
    """
    if isinstance(value, str):
        return _fault_of_text(value)
    if isinstance(value, int) and not INT_LIMITS[0] <= value <= INT_LIMITS[1]:
        return "found an integer of more than 64 bits; allowed: integers within 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"found {value}; allowed: finite numbers"
    return None


def in_words(value: Tree) -> str:
    """Return a value as a sentence shows it.

    Example:
        >>> [in_words(value) for value in ("off", True, None, 3, [1], {})]
        ["'off'", 'true', 'nothing', '3', 'a list', 'a mapping']
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:57]}...")
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "a mapping" if isinstance(value, dict) else str(value)


def _one_line(text: str) -> str:
    """Return a key as one line of a message can show it."""
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return short if short.isprintable() else repr(short)


def _fault_of_text(text: str) -> str | None:
    if "\0" in text:
        return "found text with a NUL character; allowed: text without it"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "found text with half a surrogate pair; allowed: text of whole characters"
    return None
