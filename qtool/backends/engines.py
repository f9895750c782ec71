"""The engines of torch, by name: each runs one backend, and bears its name; and what to do where one does not fit."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.backends.registry import BACKENDS
from qtool.errors import UsageError, nearest

if TYPE_CHECKING:
    from qtool.backends.record import Backend

AUTO = "auto"
"""In place of an engine's name: for each node the fastest one that is right."""


class OnMismatch(StrEnum):
    """What becomes of a node whose engine is missing, or computes it wrong.

    ERROR: loading fails. FALLBACK: it runs on an engine that is right. WARN: it runs as asked, wrong or not.
    """

    ERROR = "error"
    FALLBACK = "fallback"
    WARN = "warn"


def engine_names() -> tuple[str, ...]:
    """Return the names of all torch engines, here or not."""
    return tuple(record.engine for record in BACKENDS if record.engine is not None)


def backend_of_engine(name: str) -> Backend:
    """Return the backend that a torch engine runs.

    Raises:
        UsageError: there is no such engine.

    Example:
        >>> backend_of_engine("qnnpack").name
        'qnnpack'
    """
    for record in BACKENDS:
        if name in (record.engine, record.name):
            if record.engine is not None:
                return record
            msg = f"{name!r} runs in {record.runtime}, not in torch. Use one of: {_choices()}"
            raise UsageError(msg)
    msg = f"engine {name!r} is not known{nearest(name, (AUTO, *engine_names())) or '.'} Use one of: {_choices()}."
    raise UsageError(msg)


def check_on_mismatch(word: str) -> OnMismatch:
    """Return the way to go on that a word names.

    Raises:
        UsageError: it names none.
    """
    words = [way.value for way in OnMismatch]
    if word not in words:
        msg = f"on_mismatch {word!r} is not known{nearest(word, words) or '.'} Use one of: {', '.join(words)}."
        raise UsageError(msg)
    return OnMismatch(word)


def _choices() -> str:
    return ", ".join((AUTO, *engine_names()))
