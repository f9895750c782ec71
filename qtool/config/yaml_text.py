"""A settled config as YAML text that reads back as the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qtool.config.source import resolve_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.config.document import KeyPath, Tree

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./*+-]*(?::[A-Za-z0-9_./*+-]+)*", re.ASCII)
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(tree: Tree, origin: Callable[[KeyPath], str] | None = None) -> str:
    r"""Return a tree as YAML, one key a line; lists of single values stand in brackets.

    Args:
        tree: the mapping.
        origin: what is said about each single value, as a comment after it; lists then have one item a line.

    Example:
        >>> yaml_text({"target": {"backend": "fbgemm"}, "skip": ["a", "no: b"]})
        'target:\n  backend: fbgemm\nskip: [a, "no: b"]\n'
    """
    return "".join(f"{line}\n" for line in _lines(tree, (), "", origin))


def scalar(value: Tree) -> str:
    """Return a single value, an empty list or an empty mapping as YAML; text is quoted where it must be.

    Example:
        >>> [scalar(value) for value in (None, True, 1e-5, "0123", "12", "_([0-9]+)")]
        ['null', 'true', '1e-05', '0123', '"12"', '"_([0-9]+)"']
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and resolve_plain(value) == value and not value.startswith(("---", "..."))
        return value if is_plain else _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(scalar, value))}]"
    return "{}" if isinstance(value, dict) else repr(value)


def leaves(tree: Tree, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Tree]]:
    """Yield key path and value of all that holds nothing further: single values, empty lists and mappings."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list) and tree:
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))
    else:
        yield path, tree


def _lines(tree: Tree, path: KeyPath, indent: str, origin: Callable[[KeyPath], str] | None) -> Iterator[str]:
    if isinstance(tree, dict):
        entries = [((*path, key), f"{scalar(key)}:", value) for key, value in tree.items()]
    else:
        assert isinstance(tree, list)
        entries = [((*path, index), "-", value) for index, value in enumerate(tree)]
    for at, head, value in entries:
        if _is_on_one_line(value, has_origin=origin is not None):
            yield f"{indent}{head} {scalar(value)}{f'  # {origin(at)}' if origin else ''}"
        elif head == "-":
            first, *rest = _lines(value, at, f"{indent}  ", origin)
            yield f"{indent}- {first[len(indent) + 2 :]}"
            yield from rest
        else:
            yield f"{indent}{head}"
            yield from _lines(value, at, f"{indent}  ", origin)


def _is_on_one_line(value: Tree, *, has_origin: bool) -> bool:
    if isinstance(value, list):
        return not value or (not has_origin and not any(isinstance(item, list | dict) for item in value))
    return not (isinstance(value, dict) and value)


def _quoted(text: str) -> str:
    return f'"{"".join(_ESCAPES.get(c) or (c if c.isprintable() else _escaped(c)) for c in text)}"'


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
