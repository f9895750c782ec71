"""Reads the JSON documents of a qtool file strictly, into frozen records; whatever is wrong is a FileFormatError.

Stricter than `json.loads`: no NaN or infinity, no key twice, no unknown key, no `"1"` for 1, a known version only.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from qtool.errors import FileFormatError
from qtool.stamp import bounded_json
from qtool.stamp.records import build
from qtool.stamp.upgrades import NO_UPGRADES, upgraded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.stamp.upgrades import Upgrade

Document = TypeVar("Document")

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
        document = bounded_json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object_without_doubles
        )
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        msg = f"{where}: not valid JSON: {error}; the file is damaged or was not written by qtool"
        raise FileFormatError(msg) from error
    if not isinstance(document, dict):
        msg = f"{where}: found a JSON {type(document).__name__}; an object is expected"
        raise FileFormatError(msg)
    _check_version(document.get("format_version"), where, newest)
    return document


def decode(
    kind: type[Document],
    text: str | bytes,
    *,
    where: str,
    newest: int,
    upgrades: Mapping[int, Upgrade] = NO_UPGRADES,
) -> Document:
    """Return the record of class `kind` that `text` states.

    Args:
        kind: a frozen dataclass of annotations that `records.build` reads.
        text: JSON, UTF-8 if bytes.
        where: what to call the text in errors.
        newest: the newest `format_version`, which is the one `kind` holds.
        upgrades: by older version, the step to the next; see `stamp.upgrades`.

    Raises:
        FileFormatError: as `parse_document`, or a field is missing, unknown, of another type or out of range.
    """
    document = upgraded(parse_document(text, where=where, newest=newest), upgrades)
    problems: list[str] = []
    record = build(kind, document, problems)
    if problems:
        more = [f"and {len(problems) - _MAX_PROBLEMS} more"] if len(problems) > _MAX_PROBLEMS else []
        msg = f"{where}: {'; '.join([*problems[:_MAX_PROBLEMS], *more])}"
        raise FileFormatError(msg)
    return cast("Document", record)


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
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        msg = f"the key {twice!r} stands there twice"
        raise ValueError(msg)
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"{text[:20]} is too large for a number"
        raise ValueError(msg)
    return number


def _refuse_constant(word: str) -> NoReturn:
    msg = f"{word} is not a number"
    raise ValueError(msg)
