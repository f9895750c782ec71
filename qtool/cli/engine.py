"""Whether an engine is here, asked before any work and not by a kernel that fails in the middle."""

from __future__ import annotations

from qtool.errors import MissingEngineError


def require_engine(engine: str | None, *, option: str) -> None:
    """Make sure that torch has an engine here; None is a backend that torch does not run.

    Args:
        engine: name of a torch engine.
        option: the option that chooses another one.

    Raises:
        MissingEngineError: it is not here; the message says which are.
    """
    from qtool.lowering.engine_switch import available_engines

    engines = available_engines()
    if engine is None or engine in engines:
        return
    if engines:
        advice = f"this torch has: {', '.join(engines)}. Choose one of them with {option}"
    else:
        advice = f"this torch has none, so {option} offers no other. Install a torch built with quantized engines"
    msg = f"engine {engine!r} is not available here; {advice}, or run this where {engine} is (see `qtool backends`)"
    raise MissingEngineError(msg)
