"""The list of all backends. Adding one is a file in `catalog/` and a row here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.catalog import fbgemm, onednn, onnxruntime, qnnpack, x86, xnnpack
from qtool.errors import UsageError, nearest

if TYPE_CHECKING:
    from qtool.backends.record import Backend

BACKENDS: tuple[Backend, ...] = (
    fbgemm.BACKEND,
    x86.BACKEND,
    onednn.BACKEND,
    qnnpack.BACKEND,
    onnxruntime.BACKEND,
    xnnpack.BACKEND,
)


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends, torch engines first."""
    return tuple(backend.name for backend in BACKENDS)


def backend(name: str) -> Backend:
    """Return the backend of that name.

    Raises:
        UsageError: there is none.

    Example:
        >>> backend("qnnpack").engine
        'qnnpack'
    """
    for record in BACKENDS:
        if record.name == name:
            return record
    names = backend_names()
    msg = f"backend {name!r} is not known{nearest(name, names) or '.'} Use one of: {', '.join(names)}."
    raise UsageError(msg)
