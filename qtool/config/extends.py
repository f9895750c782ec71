"""`extends: other.yaml`: a config that starts from another file and says only what differs.

Mappings merge key by key; lists and single values replace what the other file says. Every value keeps the mark of
the file that it stands in, so that a fault is found where it was made.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from qtool.config.document import EXTENDS, Document, Marks, Problem, in_words, location
from qtool.config.file import decoded, read_bytes
from qtool.config.paths import PACKAGE_PREFIX
from qtool.config.source import parse_yaml
from qtool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qtool.config.document import KeyPath, Mark, Tree

MAX_EXTENDS = 8
"""Longest chain of files below the first; chosen: people lose track long before."""
_PATHS = (("model", "checkpoint"), *(("data", name, "folder") for name in ("calibrate", "train", "evaluate")))
"""Keys whose relative paths start from the file that says them."""


def with_bases(document: Document, folder: Path, path: Path | None = None) -> Document:
    """Return the document on top of the files it extends; without `extends` it is returned as it is.

    Args:
        document: the config, whose `extends` starts from `folder`.
        folder: the folder of its file.
        path: its file, None for one from a stream.

    Raises:
        ConfigError: a file cannot be read, or extends itself, or the chain is too long.
    """
    return _with_bases(document, folder, [(path, document.name)])


def merged(base: Document, top: Document) -> Document:
    """Return `top` over `base`: mappings merge, all else replaces; another `kind` replaces its mapping.

    Example:
        `{backend: x86, isa: vnni}` with `{isa: any}` on top is `{backend: x86, isa: any}`.
    """
    replaced: set[KeyPath] = set()
    tree = _merged(base.tree, top.tree, (), replaced)
    marks = {at: marks for at, marks in base.marks.items() if replaced.isdisjoint(_prefixes(at))}
    return Document(
        name=top.name,
        tree=tree,
        marks={**marks, **top.marks},
        problems=(*base.problems, *top.problems),
        bases=(*top.bases, *base.bases),
    )


def _with_bases(document: Document, folder: Path, chain: list[tuple[Path | None, str]]) -> Document:
    """Return the document on top of its bases; `chain` has file and name of it and of all that lead to it."""
    tree = document.tree
    if not isinstance(tree, dict) or EXTENDS not in tree:
        return document
    text = tree[EXTENDS]
    top = replace(document, tree={key: value for key, value in tree.items() if key != EXTENDS})
    if any(problem.path == (EXTENDS,) for problem in document.problems):
        return top  # its fault is among the document's problems already
    place = f"{document.locate((EXTENDS,))}: {EXTENDS}"
    if not isinstance(text, str) or not text:
        raise ConfigError([f"{place}: found {in_words(text)}; allowed: the path of another config file"])
    path, name = folder / text, str(Path(document.name).parent / text)
    _check_chain(place, [*chain, (path, name)])
    content = read_bytes(path, f"{place}: {text!r}")
    base = _labelled(parse_yaml(decoded(content, name), name))
    below = _without_version(_with_bases(base, path.parent, [*chain, (path, name)]))
    below = replace(below, tree=_moved(below.tree, PurePath(text).parent), bases=(path, *below.bases))
    return merged(below, top)


def _check_chain(place: str, chain: list[tuple[Path | None, str]]) -> None:
    *above, (path, _) = chain
    assert path is not None
    # Not Path.resolve(), which raises where links lead in a circle: reading such a file says so.
    files = [file and os.path.realpath(file) for file, _ in above]
    if os.path.realpath(path) in files:
        names = [name for _, name in chain[files.index(os.path.realpath(path)) :]]
        raise ConfigError([f"{place}: found a cycle: {' extends '.join(names)}; allowed: a chain that ends"])
    if len(above) > MAX_EXTENDS:
        raise ConfigError([f"{place}: found a chain of more than {MAX_EXTENDS} extends; allowed: {MAX_EXTENDS}"])


def _labelled(document: Document) -> Document:
    """Return the document with its file's name in every mark."""

    def label(mark: Mark) -> Mark:
        return replace(mark, file=document.name)

    marks = {at: Marks(each.key and label(each.key), label(each.value)) for at, each in document.marks.items()}
    problems = tuple(replace(each, mark=each.mark and label(each.mark)) for each in document.problems)
    return replace(document, marks=marks, problems=problems)


def _without_version(document: Document) -> Document:
    """Return the document without its version, which must be right but is not handed on."""
    tree = document.tree
    if not isinstance(tree, dict):
        text = f"found {in_words(tree)}; allowed: a mapping, the config that another one extends"
        raise ConfigError([f"{location(document.name, document.mark(()))}: {text}"])
    version = tree.get("version")
    problems = document.problems
    if "version" not in tree:
        text = "missing; needed: 1, the version of this format, in every file"
        problems += (Problem(path=("version",), text=text, mark=document.mark(())),)
    elif not (type(version) is int and version == 1):
        text = f"found {in_words(version)}; allowed: 1"
        problems += (Problem(path=("version",), text=text, mark=document.mark(("version",))),)
    rest = {key: value for key, value in tree.items() if key != "version"}
    marks = {at: marks for at, marks in document.marks.items() if at[:1] not in (("version",), (EXTENDS,))}
    return replace(document, tree=rest, marks=marks, problems=problems)


def _moved(tree: Tree, folder: PurePath) -> Tree:
    """Return the tree of a file in `folder` with its relative paths as one writes them a level above."""
    for path in _PATHS:
        tree = _moved_at(tree, path, folder)
    return tree


def _moved_at(tree: Tree, path: KeyPath, folder: PurePath) -> Tree:
    if not path:
        is_relative = isinstance(tree, str) and tree and not tree.startswith(PACKAGE_PREFIX)
        return str(folder / tree) if isinstance(tree, str) and is_relative else tree
    key, *rest = path
    if not isinstance(tree, dict) or not isinstance(key, str) or key not in tree:
        return tree
    return {**tree, key: _moved_at(tree[key], tuple(rest), folder)}


def _merged(base: Tree, top: Tree, path: KeyPath, replaced: set[KeyPath]) -> Tree:
    if not isinstance(base, dict) or not isinstance(top, dict) or _is_other_kind(base, top, path):
        replaced.add(path)
        return top
    both = {key: _merged(base[key], value, (*path, key), replaced) for key, value in top.items() if key in base}
    return {**base, **top, **both}


def _is_other_kind(base: dict[str, Tree], top: dict[str, Tree], path: KeyPath) -> bool:
    """Tell whether `top` is another kind of data source or optimizer, which has no use for the keys of the old one."""
    return (
        path[:1] in (("data",), ("train",)) and len(path) == 2 and top.get("kind", base.get("kind")) != base.get("kind")
    )


def _prefixes(path: KeyPath) -> Iterable[KeyPath]:
    return (path[:length] for length in range(len(path) + 1))
