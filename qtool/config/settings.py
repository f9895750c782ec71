"""`--set key=value`: single values of a config, said on the command line."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from qtool.config.document import EXTENDS, MAX_DEPTH, Document, Mark, Marks, Problem, dotted, in_words
from qtool.config.source import parse_value
from qtool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.config.document import KeyPath, Tree

_INDEX = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)


def with_settings(document: Document, settings: Sequence[str]) -> Document:
    """Return the document with each `key=value` put in, in order; what was there is replaced.

    Args:
        document: the config.
        settings: the key path with dots, items of lists by number, and the value as YAML; the place of the first is
            called `--set #1`.

    Raises:
        ConfigError: a setting has no key, or its value is no YAML.

    Example:
        >>> with_settings(document, ["target.isa=vnni"]).locate(("target", "isa"))
        '--set #1'
    """
    for number, text in enumerate(settings, 1):
        document = _with_setting(document, text, f"--set #{number}")
    return document


def _with_setting(document: Document, text: str, place: str) -> Document:
    key, equals, value_text = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError([f"{place}: found {in_words(text)}; allowed: key=value, such as target.isa=vnni"])
    if parts[0] == EXTENDS:
        raise ConfigError([f"{place}: {EXTENDS}: found a setting; allowed: only in a file"])
    if len(parts) > MAX_DEPTH:
        raise ConfigError([f"{place}: found a key of {len(parts)} parts; allowed: at most {MAX_DEPTH}"])
    value = parse_value(value_text, place)
    mark = Mark(0, 0, place)
    tree = deepcopy(document.tree)
    path, fault = _put(tree, parts, value.tree)
    if fault:
        return replace(document, problems=(*document.problems, Problem(path=path, text=fault, mark=mark)))
    marks = {at: marks for at, marks in document.marks.items() if at[: len(path)] != path}
    for length in range(1, len(path)):
        marks.setdefault(path[:length], Marks(mark, mark))
        if document.value(path[:length]) is None:
            marks[path[:length]] = Marks(mark, mark)  # made by this setting, or nothing stood there
    marks |= {(*path, *at): Marks(mark, mark) for at in value.marks or [()]}
    old = tuple(problem for problem in document.problems if problem.path[: len(path)] != path)
    new = tuple(replace(problem, path=(*path, *problem.path), mark=mark) for problem in value.problems)
    return replace(document, tree=tree, marks=marks, problems=(*old, *new))


def _put(tree: Tree, parts: list[str], value: Tree) -> tuple[KeyPath, str]:
    """Put `value` into the tree at the key path; return that path, and what is wrong with it, if anything is.

    Missing mappings are made, missing items of lists are not: that is more often a slip than meant.
    """
    path: KeyPath = ()
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if isinstance(tree, list):
            if not _INDEX.fullmatch(part) or int(part) >= len(tree):
                return (*path, part), f"found no such item; allowed: {_items(tree)}, or the whole list {dotted(path)}"
            path = (*path, int(part))
            if is_last:
                tree[int(part)] = value
            tree = tree[int(part)]
        elif isinstance(tree, dict):
            path = (*path, part)
            if is_last:
                tree[part] = value
            elif tree.get(part) is None:
                if _INDEX.fullmatch(parts[number + 1]):
                    return (
                        *path,
                        parts[number + 1],
                    ), f"found no list {dotted(path)} yet; allowed: the whole list, such as {dotted(path)}=[...]"
                tree[part] = {}
            tree = tree[part]
        else:
            return (*path, part), f"found {in_words(tree)} at {dotted(path) or 'the top'}; allowed: a mapping or a list"
    return path, ""


def _items(items: list[Tree]) -> str:
    if not items:
        return "no number, since the list is empty"
    return "0" if len(items) == 1 else f"0 to {len(items) - 1}"
