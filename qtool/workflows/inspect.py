"""Says what a file was made for and what does not fit the target it is asked about. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.host import host_facts
from qtool.backends.registry import backend as find_backend
from qtool.errors import UsageError, nearest
from qtool.inspection.inspect import inspect_file
from qtool.types import Isa

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.inspection.findings import Report


def inspect(source: str | Path | bytes, *, backend: str | None = None, isa: str | None = None) -> Report:
    """Return what a file says about itself, with a finding for everything that does not fit.

    Nothing in the file is executed or imported, and neither torch nor an engine is needed.

    Args:
        source: path of the file, or its bytes.
        backend: the backend it is to run on; what the file was made for if None.
        isa: `any`, `vnni` or `no-vnni`: the CPU it is to run on; what the file was made for if None.

    Raises:
        UsageError: no such backend or ISA.
        FileFormatError: the file cannot be read safely.

    Example:
        >>> inspect("int8.pt2", backend="qnnpack").findings[0].code  # made for fbgemm
        'QT301'
    """
    if backend is not None:
        find_backend(backend)
    return inspect_file(source, backend=backend, isa=_isa(isa), host=host_facts())


def _isa(name: str | None) -> Isa | None:
    if name is None:
        return None
    names = [isa.value for isa in Isa]
    if name not in names:
        msg = f"ISA {name!r} is not known{nearest(name, names) or '.'} Use one of: {', '.join(names)}."
        raise UsageError(msg)
    return Isa(name)
