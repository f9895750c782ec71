"""A config given by Python code as the same plain tree that a file gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING

from qtool.config.document import MAX_DEPTH, Document, Problem, fault_of

if TYPE_CHECKING:
    from qtool.config.document import KeyPath, Tree


def document_from_mapping(mapping: Mapping[str, object], name: str) -> Document:
    """Return a mapping as a plain tree: tuples as lists, paths and enums as text, numpy's numbers as Python's.

    Faults, such as a value that is none of these, are in `problems`.

    Example:
        >>> document_from_mapping({"shape": ("batch", 3), "folder": Path("photos")}, "config").tree
        {'shape': ['batch', 3], 'folder': 'photos'}
    """
    problems: list[Problem] = []
    tree = _plain(mapping, (), problems)
    return Document(name=name, tree=tree, problems=tuple(problems))


def _plain(value: object, path: KeyPath, problems: list[Problem]) -> Tree:
    """Return `value` as plain data; None, and a problem, where it is none."""
    if len(path) > MAX_DEPTH:
        problems.append(Problem(path=path, text=f"found values nested more than {MAX_DEPTH} deep"))
        return None
    if isinstance(value, Mapping):
        no_text = [key for key in value if not isinstance(key, str)]
        problems += [Problem(path=path, text=f"found the key {key!r}; allowed: text") for key in no_text]
        return {key: _plain(item, (*path, key), problems) for key, item in value.items() if isinstance(key, str)}
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, index), problems) for index, item in enumerate(value)]
    try:
        plain = _plain_scalar(value)
    except TypeError:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        text = f"found a value of type {kind}; allowed: text, numbers, true/false, None, mappings, lists and tuples"
    else:
        text = fault_of(plain) or ""
    if text:
        problems.append(Problem(path=path, text=text))
        return None
    return plain


def _plain_scalar(value: object) -> Tree:
    """Return a single value as Python's own type; raise TypeError for any other."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value.value) if hasattr(value, "value") else value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError
