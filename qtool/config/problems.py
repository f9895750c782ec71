"""From what pydantic found wrong to located sentences: what was found, what is allowed, the nearest name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from qtool.config.document import EXTENDS, Problem, in_words
from qtool.config.rules import CONFLICT, NOT_ALLOWED
from qtool.config.schema import Config
from qtool.config.section import Section
from qtool.errors import nearest

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from qtool.config.document import Document, KeyPath, Tree

_ALLOWED = {
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le}",
    NOT_ALLOWED: "{allowed}",
}
"""What pydantic's and our own error types allow; `{}` are filled from the error's context."""

_QUOTED = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class _Place:
    """Where in the schema a fault lies.

    Attributes:
        path: the key path as the file has it.
        owner: the section whose key is at fault.
        sections: the sections that may stand at `path`: none, one, or one per kind.
    """

    path: KeyPath
    owner: type[Section]
    sections: tuple[type[Section], ...]


def problems_of(error: ValidationError, document: Document) -> list[Problem]:
    """Return each fault that pydantic found as a problem at its place in the document.

    Example:
        `target: {backend: qnpack}` gives path `("target", "backend")` and the text
        "found 'qnpack'; allowed: fbgemm, x86, onednn, qnnpack, onnxruntime, xnnpack; did you mean 'qnnpack'?".
    """
    return [_problem(details, document) for details in error.errors(include_url=False, include_input=False)]


def _problem(details: ErrorDetails, document: Document) -> Problem:
    place = _place(details["loc"])
    path, kind, context = place.path, details["type"], details.get("ctx", {})
    if kind == "missing":
        return Problem(path=path, text=f"missing; needed: {place.owner.model_fields[str(path[-1])].description}")
    if kind == "extra_forbidden":
        keys = list(place.owner.model_fields)
        if place.owner is Config and document.marks:
            keys.append(EXTENDS)  # resolved before validation, so no field; only a file can extend one
        text = f"found an unknown key; allowed: {', '.join(keys)}{nearest(str(path[-1]), keys)}"
        return Problem(path=path, text=text, at_key=True)
    if kind == CONFLICT:
        return Problem(path=path[:-1], text=context["text"], at_key=True)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        path = (*path, "kind")
        if document.value(path) is None:
            return Problem(path=path, text=f"missing; needed: one of {', '.join(map(_kind, place.sections))}")
    return _not_allowed(path, details, place, document.value(path))


def _not_allowed(path: KeyPath, details: ErrorDetails, place: _Place, found: Tree) -> Problem:
    """Return the problem that `found` is not allowed at `path`."""
    kind, context = details["type"], details.get("ctx", {})
    names: list[str] = []
    if kind in _ALLOWED:
        allowed = _ALLOWED[kind].format(**context)
        names = list(context.get("names", ()))
    elif kind == "union_tag_invalid":
        names = [_kind(section) for section in place.sections]
        allowed = ", ".join(names)
    elif kind in ("enum", "literal_error"):
        names = _QUOTED.findall(context["expected"])
        allowed = ", ".join(names) or context["expected"]
    else:
        allowed = details["msg"]
    if kind in ("dict_type", "model_type") and place.sections:
        allowed = f"a mapping with the {_keys_in_words(place.sections)}"
    near = nearest(found, names) if isinstance(found, str) else ""
    return Problem(path=path, text=f"found {context.get('found') or in_words(found)}; allowed: {allowed}{near}")


def _place(loc: tuple[int | str, ...]) -> _Place:
    """Return the place that pydantic's `loc` means: its segments, without those that name the kind of a union."""
    path: list[int | str] = []
    owner: type[Section] = Config
    annotation: Any = Config
    for part in loc:
        sections = _sections(annotation)
        if len(sections) > 1:
            annotation = next(section for section in sections if _kind(section) == part)
            continue
        path.append(part)
        if sections:
            owner = sections[0]
            field = owner.model_fields.get(str(part))
            annotation = field.annotation if field else None
        else:
            annotation = next(iter(get_args(annotation)), None)  # an item of a tuple; there is nothing below kwargs
    return _Place(tuple(path), owner, _sections(annotation))


def _sections(annotation: Any) -> tuple[type[Section], ...]:  # noqa: ANN401 - annotations have no common type
    """Return the sections among the alternatives that an annotation names."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return (annotation,) if issubclass(annotation, Section) else ()
    if get_origin(annotation) is tuple:
        return ()
    return tuple(section for part in get_args(annotation) for section in _sections(part))


def _kind(section: type[Section]) -> str:
    return str(get_args(section.model_fields["kind"].annotation)[0])


def _keys_in_words(sections: tuple[type[Section], ...]) -> str:
    if len(sections) > 1:
        return f"key kind, which is one of {', '.join(map(_kind, sections))}"
    keys = list(sections[0].model_fields)
    return f"key{'s' if len(keys) > 1 else ''} {', '.join(keys)}"
