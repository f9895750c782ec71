"""Reads the JSON documents of a qtool file strictly, into frozen records; whatever is wrong is a FileFormatError.

Stricter than `json.loads`: no NaN or infinity, no key twice, no unknown key, no `"1"` for 1, a known version only.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

from qtool.errors import FileFormatError

Document = TypeVar("Document")

STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
"""The pydantic settings of every document class, as its `__pydantic_config__`; the records inside inherit them."""

_MAX_PROBLEMS = 5


class NewerVersionError(FileFormatError):
    """A document was written by a later qtool, in a format this one does not know."""


def parse_document(text: str | bytes, *, where: str, newest: int) -> dict[str, Any]:
    """Return the JSON object in `text`, whose `format_version` is one this qtool reads.

    Raises:
        NewerVersionError: the version is newer than `newest`.
        FileFormatError: not UTF-8, not JSON, not an object, a key twice, NaN, or no version.

    Example:
        >>> parse_document('{"format_version": 1}', where="stamp", newest=1)
        {'format_version': 1}
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_without_doubles)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        msg = f"{where}: not valid JSON: {error}; the file is damaged or was not written by qtool"
        raise FileFormatError(msg) from error
    if not isinstance(document, dict):
        msg = f"{where}: found a JSON {type(document).__name__}; an object is expected"
        raise FileFormatError(msg)
    _check_version(document.get("format_version"), where, newest)
    return document


def decode(kind: type[Document], text: str | bytes, *, where: str, newest: int) -> Document:
    """Return the record of class `kind` that `text` states.

    Args:
        kind: a frozen dataclass with `__pydantic_config__ = STRICT`.
        text: JSON, UTF-8 if bytes.
        where: what to call the text in errors.
        newest: the newest `format_version` that `kind` can hold.

    Raises:
        FileFormatError: as `parse_document`, or a field is missing, unknown, of another type or out of range.
    """
    parse_document(text, where=where, newest=newest)
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:_MAX_PROBLEMS]]
        if len(found) > _MAX_PROBLEMS:
            problems.append(f"and {len(found) - _MAX_PROBLEMS} more")
        msg = f"{where}: {'; '.join(problems)}"
        raise FileFormatError(msg) from error


def _check_version(found: object, where: str, newest: int) -> None:
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        msg = f"{where}: format_version is {found!r}; this qtool reads 1 to {newest}"
        raise FileFormatError(msg)
    if found > newest:
        msg = (
            f"{where}: format version {found} is newer than this qtool reads ({newest}); "
            "install the qtool that wrote the file, or a later one"
        )
        raise NewerVersionError(msg)


def _object_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        msg = f"the key {twice!r} stands there twice"
        raise ValueError(msg)
    return result


def _refuse_constant(word: str) -> NoReturn:
    msg = f"{word} is not a number"
    raise ValueError(msg)
