"""Makes frozen dataclasses from JSON values, strictly: the annotations say what is allowed, and nothing is converted.

pydantic does the same and more; this reads a stamp in a fifth of the time that importing pydantic takes, and
`qtool inspect` should answer at once.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_NOTHING: Final = object()
_MAX_SHOWN = 60
_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


Builder = Callable[[object, list[str], str], Any]
"""What makes a value of one annotation: takes the value, the problems found so far, and the value's key path."""


def build(kind: Any, value: object, problems: list[str], where: str = "") -> Any:  # noqa: ANN401 - any annotation
    """Return `value` as an instance of `kind`; what does not fit is added to `problems`, and the result is void.

    Args:
        kind: a dataclass, enum, `tuple[X, ...]`, `X | None`, `int | str`, `Literal`, `dict[str, Any]` or scalar.
        value: as `json.loads` gives it.
        problems: one line for each fault: its key path, what was found, what is allowed.
        where: key path of `value`.

    Example:
        >>> problems = []
        >>> build(tuple[int, ...], [1, "2"], problems, "shape")
        >>> problems
        ["shape.1: '2' is not an integer"]
    """
    return _builder(kind)(value, problems, where)


@cache
def _builder(kind: Any) -> Builder:  # noqa: ANN401
    """Return what makes values of an annotation; annotations are looked at once, and values many times."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(kind)
    origin = typing.get_origin(kind) or (Enum if _is_enum(kind) else kind)
    return _MAKERS.get(origin, _scalar)(kind)


def _record(kind: type[DataclassInstance]) -> Builder:
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    fields = {field.name: _builder(hints[field.name]) for field in dataclasses.fields(kind)}
    required = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]

    def make(value: object, problems: list[str], where: str) -> object:
        if not isinstance(value, dict):
            return _refuse(value, "an object", problems, where)
        faults = len(problems)
        prefix = f"{where}." if where else ""
        problems += [f"{prefix}{key[:_MAX_SHOWN]}: unknown key" for key in value if key not in fields]
        problems += [f"{prefix}{name}: missing" for name in required if name not in value]
        found = {
            name: make_field(value[name], problems, f"{prefix}{name}")
            for name, make_field in fields.items()
            if name in value
        }
        if len(problems) > faults:
            return _NOTHING
        try:
            return kind(**found)
        except ValueError as error:  # the record checks itself: RangeError is one
            problems.append(f"{where or 'the document'}: {error}")
            return _NOTHING

    return make


def _tuple(kind: Any) -> Builder:  # noqa: ANN401
    make_item = _builder(typing.get_args(kind)[0])

    def make(value: object, problems: list[str], where: str) -> object:
        if not isinstance(value, list):
            return _refuse(value, "a list", problems, where)
        return tuple([make_item(each, problems, f"{where}.{index}") for index, each in enumerate(value)])

    return make


def _union(kind: Any) -> Builder:  # noqa: ANN401
    """Take the first alternative that fits; the faults of the last one are those to tell."""
    alternatives = typing.get_args(kind)
    takes_none = type(None) in alternatives
    makers = [_builder(each) for each in sorted(alternatives, key=lambda each: each is not type(None))]

    def make(value: object, problems: list[str], where: str) -> object:
        if value is None and takes_none:
            return None
        faults: list[str] = []
        for make_alternative in makers:
            faults = []
            found = make_alternative(value, faults, where)
            if not faults:
                return found
        problems += faults
        return _NOTHING

    return make


def _literal(kind: Any) -> Builder:  # noqa: ANN401
    allowed = typing.get_args(kind)

    def make(value: object, problems: list[str], where: str) -> object:
        if any(type(value) is type(each) and value == each for each in allowed):
            return value
        return _refuse(value, f"one of {', '.join(map(repr, allowed))}", problems, where)

    return make


def _enum(kind: type[Enum]) -> Builder:
    allowed = {each.value: each for each in kind}

    def make(value: object, problems: list[str], where: str) -> object:
        if isinstance(value, str) and value in allowed:
            return allowed[value]
        return _refuse(value, f"one of {', '.join(map(repr, allowed))}", problems, where)

    return make


def _mapping(kind: Any) -> Builder:  # noqa: ANN401
    assert typing.get_args(kind) == (str, Any), f"{kind} is not an annotation that is read here"

    def make(value: object, problems: list[str], where: str) -> object:
        return value if isinstance(value, dict) else _refuse(value, "an object", problems, where)

    return make


def _scalar(kind: type) -> Builder:
    assert kind in _WORDS, f"{kind} is not an annotation that is read here"

    def make(value: object, problems: list[str], where: str) -> object:
        if kind is float and type(value) is int:
            try:
                return float(value)
            except OverflowError:
                return _refuse(value, "a number", problems, where)
        if type(value) is not kind or (isinstance(value, str) and not _is_text(value)):
            return _refuse(value, _WORDS[kind], problems, where)
        return value

    return make


def _refuse(value: object, allowed: str, problems: list[str], where: str) -> object:
    problems.append(f"{where or 'the document'}: {_shown(value)} is not {allowed}")
    return _NOTHING


def _shown(value: object) -> str:
    """Return a short text for a value; containers by their kind alone, for they can be large."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    words = {None: "null", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _is_text(value: str) -> bool:
    """Return whether it can be written as UTF-8; JSON can spell half a surrogate pair, which cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_enum(kind: object) -> TypeGuard[type[Enum]]:
    return isinstance(kind, type) and issubclass(kind, Enum)


_MAKERS: dict[Any, Callable[[Any], Builder]] = {
    tuple: _tuple,
    types.UnionType: _union,
    typing.Union: _union,
    Literal: _literal,
    Enum: _enum,
    dict: _mapping,
}
