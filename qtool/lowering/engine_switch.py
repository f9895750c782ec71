"""torch's global engine, set only while weights are packed, under a lock, and always set back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from qtool.errors import MissingEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = threading.RLock()


def available_engines() -> tuple[str, ...]:
    """Return the quantized engines of this torch on this machine, without the placeholder `none`."""
    return tuple(engine for engine in torch.backends.quantized.supported_engines if engine != "none")


def check_engine(engine: str, *, option: str = "engine") -> None:
    """Make sure that an engine exists here: asked before any work, and not by a kernel that fails in the middle of it.

    Args:
        engine: name of a torch engine.
        option: the argument or option that chooses another one, for the message.

    Raises:
        MissingEngineError: it is not here; the message says which are.
    """
    engines = available_engines()
    if engine in engines:
        return
    if engines:
        advice = f"this torch has: {', '.join(engines)}. Choose one of them with {option}"
    else:
        advice = f"this torch has none, so {option} offers no other. Install a torch built with quantized engines"
    msg = f"engine {engine!r} is not available here; {advice}, or run this where {engine} is (see `qtool backends`)"
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
