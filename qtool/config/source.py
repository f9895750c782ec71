"""A YAML text as a plain tree, with the place of every key and value.

YAML 1.1 as PyYAML reads it has traps: `1e-4` is text, the key `no` is False, `12:30` is 750, `0123` is 83, dates
become objects, and of two equal keys the last one wins in silence. Here a plain scalar is one of these, else text:

    null            empty, `null` or `~`
    true, false     in lower case, as `True` or as `TRUE`; never `yes`, `no`, `on`, `off`
    integer         `0`, `12`, `-3`: decimal, no leading zero, no `_` and no `0x`, within 64 bits
    number          `1.5`, `.5`, `1e-4`, `-2E3`; finite

Tags, merge keys (`<<`), repeated keys and keys that are not text are problems. Anchors and aliases work; size,
depth and what aliases expand to are bounded, so that no text makes the reader run away.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from qtool.config.document import MAX_DEPTH, Document, Mark, Marks, Problem, fault_of, location
from qtool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.config.document import KeyPath, Tree

MAX_VALUES = 20_000
"""Most keys and values together, aliases expanded; chosen: a thousand overrides of three keys have 7000."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)")
_HINTS = {
    "mapping values are not allowed here": "so quote text that holds ': ', and give the keys of one mapping one indent",
    "expected <block end>, but found '<block mapping start>'": "so give the keys of one mapping one indent",
    "found character '\\t' that cannot start any token": "so indent with spaces",
    "found character '@' that cannot start any token": "so quote text that starts with it",
    "found character '%' that cannot start any token": "so quote text that starts with it",
    "found character '`' that cannot start any token": "so quote text that starts with it",
}
"""What to do about the messages of PyYAML that people meet most."""
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def parse_yaml(text: str, name: str) -> Document:
    """Return `text` as a plain tree with marks; faults of single values and keys are in `problems`.

    Args:
        text: the YAML text.
        name: the name of its file in messages.

    Raises:
        ConfigError: the text is not YAML, holds nothing, or breaks a bound, located.

    Example:
        >>> parse_yaml("{lr: 1e-4, no: 0123}", "c.yaml").tree
        {'lr': 0.0001, 'no': '0123'}
    """
    root = _compose(text, name)
    if root is None:
        raise _unreadable(name, Mark(1, 1), "the file holds nothing, not even `version: 1`")
    return _read(root, name)


def parse_value(text: str, name: str) -> Document:
    """Return the value that a YAML text stands for, by the same rules as a file; of an empty text that is nothing.

    Raises:
        ConfigError: as `parse_yaml`, but for a text that holds nothing.

    Example:
        >>> parse_value("[batch, 3]", "--set #1").tree, parse_value("", "--set #1").tree
        (['batch', 3], None)
    """
    root = _compose(text, name)
    return Document(name=name, tree=None) if root is None else _read(root, name)


def resolve_plain(text: str) -> Tree:
    """Return what a plain (unquoted) scalar stands for.

    Example:
        >>> [resolve_plain(text) for text in ("1e-4", "off", "0123", "12:30", "2026-01-01", "~")]
        [0.0001, 'off', '0123', '12:30', '2026-01-01', None]
    """
    value: Tree = text
    if text in _NULL:
        value = None
    elif text in _BOOLS:
        value = _BOOLS[text]
    elif _INTEGER.fullmatch(text):
        value = int(text[:21])  # 20 digits are past 64 bits already; Python refuses to read more than 4300
    elif _NUMBER.fullmatch(text):
        value = float(text)
    elif _NOT_FINITE.fullmatch(text):
        value = float(text.replace(".", ""))
    return value


def mark_of_position(text: str, position: int) -> Mark:
    """Return line and column of a position in `text`, lines ending as in YAML."""
    start = line = 0
    for end in _LINE_END.finditer(text, 0, position):
        start, line = end.end(), line + 1
    return Mark(line + 1, position - start + 1)


def _read(root: yaml.Node, name: str) -> Document:
    reading = _Reading(name)
    tree = reading.value(root, (), None)
    return Document(name=name, tree=tree, marks=reading.marks, problems=tuple(reading.problems))


def _compose(text: str, name: str) -> yaml.Node | None:
    """Return the root of the text's YAML nodes, None for an empty text."""
    composer = None
    try:
        composer = _BoundedComposer(text)
        return composer.get_single_node()
    except ReaderError as error:
        mark = mark_of_position(text, error.position)
        problem = f"found the character U+{ord(text[error.position]):04X}; allowed: printable characters"
    except yaml.MarkedYAMLError as error:
        mark = _mark(error.problem_mark or error.context_mark)
        problem = ", ".join(filter(None, (_context(error), error.problem, _HINTS.get(error.problem or ""))))
    except (ValueError, OverflowError):  # PyYAML lets chr() and int() fail on escapes and versions out of range
        mark = _mark(composer.get_mark() if composer else None)
        problem = "found an escape or number out of range"
    raise _unreadable(name, mark, problem)


def _context(error: yaml.MarkedYAMLError) -> str:
    """Return what PyYAML was reading when it failed, and where that begins."""
    if not error.context or not error.context_mark:
        return error.context or ""
    mark = _mark(error.context_mark)
    return f"{error.context} that begins at {mark.line}:{mark.column}"


class _BoundedComposer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's reader up to nodes, bounded and without tags: what a scalar is, `resolve_plain` decides."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.depth = 0
        self.num_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node; a node that breaks a bound or has a tag is an error."""
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        self.num_nodes += 1
        tag = getattr(event, "tag", None)
        problem = None
        if self.num_nodes > MAX_VALUES:
            problem = f"found more than {MAX_VALUES} keys and values"
        elif self.depth > MAX_DEPTH:
            problem = f"found values nested more than {MAX_DEPTH} deep"
        elif tag is not None:
            tag = tag.replace("tag:yaml.org,2002:", "!!")
            problem = f"found the tag {tag}; allowed: no tags, and quotes around text that looks like a number"
        if problem:
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)  # type: ignore[arg-type]  # stub's Mark
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reading:
    """One walk over the nodes of a document: makes the tree, collects marks and problems."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.marks: dict[KeyPath, Marks] = {}
        self.problems: list[Problem] = []

    def value(self, node: yaml.Node, path: KeyPath, key: Mark | None) -> Tree:
        """Return what `node` stands for and note where it stands; None where it is at fault."""
        mark = _mark(node.start_mark)
        self.marks[path] = Marks(key, mark)
        if len(self.marks) > MAX_VALUES:
            raise _unreadable(self.name, mark, f"found aliases that make more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise _unreadable(self.name, mark, f"found aliases that nest more than {MAX_DEPTH} deep")
        if isinstance(node, yaml.MappingNode):
            return {name: self.value(child, (*path, name), at) for name, at, child in self.entries(node, path)}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index), None) for index, child in enumerate(node.value)]
        value, fault = _read_scalar(node)
        if fault:
            self.problems.append(Problem(path=path, text=fault, mark=mark))
        return value

    def entries(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Mark, yaml.Node]]:
        """Yield name, key mark and value node of each entry with a usable key; other keys are problems."""
        seen: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark)
            name, fault = _read_key(key_node)
            if name is None:
                self.problems.append(Problem(path=path, text=fault, mark=mark))
            elif name in seen:
                first = seen[name]
                text = f"found the key a second time; allowed: once, and it stands at {first.line}:{first.column}"
                self.problems.append(Problem(path=(*path, name), text=text, mark=mark))
            else:
                seen[name] = mark
                yield name, mark, value_node


def _read_scalar(node: yaml.Node) -> tuple[Tree, str | None]:
    """Return the value of a scalar node, and its fault: then the value is None."""
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
    value = resolve_plain(node.value) if is_plain else node.value
    fault = fault_of(value)
    return (None if fault else value), fault


def _read_key(node: yaml.Node) -> tuple[str | None, str]:
    """Return the text of a key node, or None and its fault."""
    if not isinstance(node, yaml.ScalarNode):
        return None, "found a list or mapping as a key; allowed: text"
    if node.value == "<<" and node.style is None:
        return None, "found the merge key <<; allowed: the keys themselves, written out"
    value, fault = _read_scalar(node)
    if isinstance(value, str):
        return value, ""
    return None, fault or f"found the key {node.value or '(nothing)'}; allowed: text, so write it in quotes"


def _unreadable(name: str, mark: Mark, problem: str) -> ConfigError:
    return ConfigError([f"{location(name, mark)}: cannot read this YAML: {problem}"])


def _mark(mark: yaml.Mark | None) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(1, 1)
