"""Parses an expression of TorchScript's printed form into a tree of records.

    ops.quantized.conv2d(x, CONSTANTS.c0, 0.0126, -3)
    (body).forward((quant).forward(x, ), )
    (state)[10]

What else there is (`is`, `not`, `and`, `or`, `a if b else c`, dicts, slices) becomes `Unknown`, with its parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH: Final = 60
"""Of brackets within brackets; a deeper expression is not followed."""

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d[\d.]*(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>[rbuf]?\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|//|\*\*|->|.))",
    re.S,
)
_CONSTANTS: Final[dict[str, object]] = {
    "True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan"),
}  # fmt: skip
_MAX_DIGITS: Final = 40


@dataclass(frozen=True)
class Name:
    """A variable, or the first word of a path."""

    text: str


@dataclass(frozen=True)
class Constant:
    """A number, a text, True, False or None."""

    value: object


@dataclass(frozen=True)
class Attribute:
    """`owner.name`."""

    owner: Expression
    name: str


@dataclass(frozen=True)
class Invocation:
    """`function(arguments, key=argument)`."""

    function: Expression
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Item:
    """`owner[index]`."""

    owner: Expression
    index: Expression


@dataclass(frozen=True)
class Row:
    """A tuple or a list."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Unknown:
    """What is not followed; `parts` are the expressions in it."""

    parts: tuple[Expression, ...] = ()


Expression = Name | Constant | Attribute | Invocation | Item | Row | Unknown


class ExpressionError(ValueError):
    """A text is no expression that is printed by TorchScript."""


def parse(text: str) -> Expression:
    """Return the tree of an expression.

    Raises:
        ExpressionError: not an expression, or nested too deeply.

    Example:
        >>> parse("(x)[1]")
        Item(owner=Name(text='x'), index=Constant(value=1))
    """
    parser = _Parser(tokens(text))
    found = parser.expression(0)
    if parser.word == ",":  # several results
        parser.taken()
        found = Row((found, *parser.items("", 0)))
    if parser.kind:
        msg = f"{parser.word[:20]!r} is left over"
        raise ExpressionError(msg)
    return found


def tokens(text: str) -> list[tuple[str, str]]:
    """Return (kind, text) of every word, number, text and sign."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            found.append((kind, match[kind]))
    return [token for token in found if not token[1].isspace()]


class _Parser:
    """Goes through tokens once, from left to right."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        self.found = found
        self.place = 0

    @property
    def kind(self) -> str:
        return self.found[self.place][0] if self.place < len(self.found) else ""

    @property
    def word(self) -> str:
        return self.found[self.place][1] if self.place < len(self.found) else ""

    def taken(self) -> str:
        word = self.word
        self.place += 1
        return word

    def expect(self, sign: str) -> None:
        if self.taken() != sign:
            msg = f"{sign!r} is missing"
            raise ExpressionError(msg)

    def expression(self, depth: int) -> Expression:
        """Return an operand, or several that are joined by something that is not followed."""
        if depth > MAX_DEPTH:
            msg = f"brackets are nested deeper than {MAX_DEPTH}"
            raise ExpressionError(msg)
        parts = [self.operand(depth)]
        while self.kind and self.word not in (")", "]", "}", ",", "=", ":"):
            self.taken()
            while self.word in ("not", "-", "in"):
                self.taken()
            parts.append(self.operand(depth))
        return parts[0] if len(parts) == 1 else Unknown(tuple(parts))

    def operand(self, depth: int) -> Expression:
        if self.word == "not":
            self.taken()
            return Unknown((self.operand(depth),))
        found = self.atom(depth)
        while self.word in (".", "(", "["):
            sign = self.taken()
            if sign == ".":
                found = Attribute(found, self.taken())
            elif sign == "(":
                found = self.invocation(found, depth)
            else:
                items = self.items("]", depth)
                found = Item(found, items[0] if len(items) == 1 else Unknown(tuple(items)))
        return found

    def atom(self, depth: int) -> Expression:
        kind, word = self.kind, self.taken()
        if kind in _ATOMS:
            return _ATOMS[kind](word)
        if word == "-" and self.kind in ("number", "name"):
            inner = self.atom(depth)
            value = inner.value if isinstance(inner, Constant) else None
            return Constant(-value) if isinstance(value, int | float) else Unknown()
        if word not in _ENDS:
            msg = f"{word[:20]!r} begins no expression"
            raise ExpressionError(msg)
        items = tuple(self.items(_ENDS[word], depth))
        if word == "(" and len(items) == 1 and self.found[self.place - 2][1] != ",":
            return items[0]
        return Unknown(items) if word == "{" else Row(items)

    def items(self, end: str, depth: int) -> list[Expression]:
        found = []
        while self.word != end:
            if self.word in (":", ","):  # a slice, or a dict
                self.taken()
                continue
            found.append(self.expression(depth + 1))
            if self.word not in (end, ",", ":"):
                msg = f"{end!r} is missing"
                raise ExpressionError(msg)
            if self.word == ",":
                self.taken()
        self.taken()
        return found

    def invocation(self, function: Expression, depth: int) -> Invocation:
        arguments, named = [], []
        while self.word != ")":
            if self.kind == "name" and self.found[self.place + 1 : self.place + 2] == [("sign", "=")]:
                key = self.taken()
                self.taken()
                named.append((key, self.expression(depth + 1)))
            else:
                arguments.append(self.expression(depth + 1))
            if self.word not in (")", ","):
                msg = "')' is missing"
                raise ExpressionError(msg)
            if self.word == ",":
                self.taken()
        self.taken()
        return Invocation(function, tuple(arguments), tuple(named))


def _number(token: str) -> int | float:
    try:
        return int(token) if token.isdigit() and len(token) <= _MAX_DIGITS else float(token)
    except ValueError as error:
        msg = f"{token[:20]!r} is no number"
        raise ExpressionError(msg) from error


def _text(token: str) -> str:
    return token.lstrip("rbuf")[1:-1]


_ENDS: Final = {"(": ")", "[": "]", "{": "}"}
_ATOMS: Final[dict[str, Callable[[str], Expression]]] = {
    "number": lambda word: Constant(_number(word)),
    "text": lambda word: Constant(_text(word)),
    "name": lambda word: Constant(_CONSTANTS[word]) if word in _CONSTANTS else Name(word),
}
