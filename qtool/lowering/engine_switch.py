"""torch's global engine, set only while weights are packed, under a lock, and always set back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from qtool.errors import MissingEngineError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = threading.RLock()


def available_engines() -> tuple[str, ...]:
    """Return the quantized engines of this torch on this machine, without the placeholder `none`."""
    return tuple(engine for engine in torch.backends.quantized.supported_engines if engine != "none")


def check_engine(engine: str) -> None:
    """Check that an engine exists here.

    Raises:
        MissingEngineError: it does not; the message lists those that do.
    """
    engines = available_engines()
    if engine not in engines:
        have = ", ".join(engines) or "none: this torch was built without quantized engines"
        msg = (
            f"engine {engine!r} is not available here{nearest(engine, engines)} (available: {have}). "
            f"Choose another with --engine, or prepare the model for another backend with target.backend."
        )
        raise MissingEngineError(msg)


@contextmanager
def packing_for(engine: str) -> Iterator[None]:
    """Make `engine` torch's engine for the block; one thread at a time."""
    check_engine(engine)
    with _LOCK:
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = engine
        try:
            yield
        finally:
            torch.backends.quantized.engine = before
