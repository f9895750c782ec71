"""What single values of a config must look like, as types for the schema.

A rule raises one of two errors, and `qtool.config.problems` makes the sentence: `require` states what is allowed,
`agree` states what is wrong between the keys of one mapping.
"""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from qtool.backends.registry import backend_names
from qtool.backends.target import PORTABLE, PORTABLE_BACKENDS, target
from qtool.config.document import in_words
from qtool.config.paths import form_of_package_path
from qtool.errors import UsageError, nearest

NOT_ALLOWED: Final = "not_allowed"
CONFLICT: Final = "conflict"
FACTORY_FORM: Final = "'package.module:attribute'"
MAX_SEED = (1 << 32) - 1
"""Largest seed that numpy's RandomState takes."""


def require(is_met: object, allowed: str, *, found: str = "", names: Iterable[str] = ()) -> None:
    """Raise the error that something else is allowed, unless `is_met`.

    Args:
        is_met: the rule is kept.
        allowed: what is allowed, in words.
        found: what was found, in words; the value itself where empty.
        names: those that a wrong name is compared with.
    """
    if not is_met:
        raise PydanticCustomError(NOT_ALLOWED, "{allowed}", {"allowed": allowed, "found": found, "names": tuple(names)})


def agree(is_met: object, problem: str) -> None:
    """Raise the error that keys of the mapping around the value contradict each other, unless `is_met`."""
    if not is_met:
        raise PydanticCustomError(CONFLICT, "{text}", {"text": problem})


def is_factory(text: str) -> bool:
    """Tell whether `text` has the form package.module:attribute."""
    module, _, attribute = text.partition(":")
    return all(name.isidentifier() for name in [*module.split("."), *attribute.split(".")])


def _check_factory(text: str) -> str:
    require(is_factory(text), FACTORY_FORM)
    return text


def _check_target(value: object) -> str | tuple[str, ...]:
    """Return one name, `portable`, or several names; what means the same has the same value."""
    words = (*backend_names(), PORTABLE)
    names = tuple(value) if isinstance(value, list | tuple) else (value,)
    require(names, f"{', '.join(words)}, or a list of backends")
    for name in names:
        is_known = isinstance(name, str) and name in words
        near = nearest(name, words) if isinstance(name, str) else ""
        found = "" if len(names) == 1 else f"{in_words(name)} in the list{near}"
        require(is_known, f"{', '.join(words)}, or a list of backends", found=found, names=words)
        require(names.count(name) == 1, "each backend once", found=f"{name!r} twice")
    if len(names) == 1:
        return str(names[0])
    require(PORTABLE not in names, f"{PORTABLE} alone: it stands for {', '.join(PORTABLE_BACKENDS)}", found="both")
    try:
        target(names)
    except UsageError as error:
        require(False, "backends that one model can fit", found=f"{', '.join(names)} ({error})")
    return PORTABLE if names == PORTABLE_BACKENDS else names


def _check_dimension(size: object) -> object:
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 1
    is_name = isinstance(size, str) and size.isidentifier()
    require(is_size or is_name, "a size of at least 1, or a name such as batch for a size that varies")
    return size


def _check_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    for name in kwargs:
        require(name.isidentifier(), "names that Python takes as keywords", found=f"the keyword {name!r}")
    return kwargs


def _check_label(pattern: str) -> str:
    try:
        num_groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        require(False, "a regular expression", found=f"{pattern!r}, which is none ({error})")
    else:
        found = f"{pattern!r} with {num_groups} groups"
        require(num_groups == 1, "one group, for the class index, as in '_([0-9]+)\\.jpg$'", found=found)
    return pattern


def _check_glob(pattern: str) -> str:
    path = PurePath(pattern)
    require(not path.is_absolute() and ".." not in path.parts, "a pattern of names inside the folder, such as '*.jpg'")
    return pattern


def _check_path(text: str) -> str:
    form = form_of_package_path(text)
    require(form is None, str(form))
    return text


def _check_not_empty(items: tuple[Any, ...]) -> tuple[Any, ...]:
    # Not Field(min_length=1): pydantic counts faulty items as absent and would report both.
    require(items, "at least one item")
    return items


NOT_EMPTY = AfterValidator(_check_not_empty)
Text = Annotated[str, Field(min_length=1)]
PathText = Annotated[Text, AfterValidator(_check_path)]
Glob = Annotated[Text, AfterValidator(_check_glob)]
Label = Annotated[Text, Field(max_length=200), AfterValidator(_check_label)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
_BACKEND_SCHEMA: Final[dict[str, Any]] = {"type": "string", "enum": list(backend_names())}
TargetBackends = Annotated[
    str | tuple[str, ...],
    PlainValidator(_check_target),
    PlainSerializer(lambda value: value if isinstance(value, str) else list(value)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [*backend_names(), PORTABLE]},
                {"type": "array", "items": _BACKEND_SCHEMA, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
Factory = Annotated[
    str,
    AfterValidator(_check_factory),
    WithJsonSchema({"type": "string", "pattern": r"^[^:.]+(\.[^:.]+)*:[^:.]+(\.[^:.]+)*$"}),
]
Kwargs = Annotated[dict[str, Any], AfterValidator(_check_kwargs)]
Dimension = Annotated[
    int | str,
    PlainValidator(_check_dimension),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}]}),
]
