"""Says what a file was made for and what does not fit the target it is asked about. Torch-free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from qtool.backends.host import host_facts
from qtool.errors import UsageError
from qtool.inspection.inspect import inspect_file

if TYPE_CHECKING:
    from qtool.inspection.findings import Report
    from qtool.types import Isa


def inspect(
    source: str | os.PathLike[str] | bytes,
    *,
    backend: str | None = None,
    isa: Isa | str | None = None,
    engine: str | None = None,
    on_host: bool = False,
    fail_on: str = "error",
    histograms: bool = True,
) -> Report:
    """Return what a file says about itself, with a finding for everything that does not fit its target.

    Nothing in the file is executed or imported, and neither torch nor an engine is needed. The machine this runs on
    is looked at too: a file that it would compute wrong is warned of.

    Args:
        source: path of the file, or its bytes.
        backend: the backend it is to run on; None is the one it was made for.
        isa: `any`, `vnni` or `no-vnni`, the CPU it is to run on; None is the one it was made for.
        engine: the torch engine it is to run on, here; in place of a backend.
        on_host: it is to run on this machine: its CPU counts, and the engines that torch's packages have here.
        fail_on: `error`, or `warning` for an outcome that warnings spoil too.
        histograms: count the values and scales of weights for histograms, which takes a part of the time.

    Raises:
        UsageError: no such file, backend, engine or ISA, two that exclude each other, or the source is neither path
            nor bytes.
        FileFormatError: the file is of no known kind, damaged, or refused; see docs/security.md.

    Example:
        >>> report = inspect("int8.pt2", backend="qnnpack")  # made for fbgemm
        >>> report.outcome.value, report.findings[0].code
        ('findings', 'QT301')
    """
    _check_is_source(source)
    content = source if isinstance(source, bytes) else Path(source)
    return inspect_file(
        content,
        backend=backend,
        isa=isa,
        engine=engine,
        on_host=on_host,
        host=host_facts(),
        fail_on=fail_on,
        histograms=histograms,
    )


def _check_is_source(source: object) -> None:
    if not isinstance(source, (bytes, str, os.PathLike)):
        msg = f"inspect takes the path of a file or its bytes; this is a {type(source).__name__}"
        raise UsageError(msg)
