"""Save: a prepared or converted model to a file, whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from qtool.errors import UsageError
from qtool.runtime.converted import ConvertedModel
from qtool.runtime.prepared import PreparedModel
from qtool.runtime.store import to_bytes
from qtool.workflows.atomic_file import check_writable, write_atomically

if TYPE_CHECKING:
    from torch import nn


def save(model: nn.Module, destination: str | Path | BinaryIO) -> None:
    """Write what `prepare` or `convert` returned; the same model gives the same bytes.

    Args:
        model: a PreparedModel or a ConvertedModel.
        destination: a path, or a binary file open for writing. A path holds the whole file or what it held before.

    Raises:
        UsageError: another kind of model, a path that cannot be written, or a destination that takes no bytes.
    """
    if not isinstance(model, (PreparedModel, ConvertedModel)):
        msg = (
            f"cannot save a {type(model).__name__}: save takes what qtool.prepare or qtool.convert returned. "
            f"What qtool.load gives of a converted file is packed for an engine; the file itself is its saved form"
        )
        raise UsageError(msg)
    if isinstance(destination, (str, Path)):
        path = Path(destination)
        check_writable(path)
        write_atomically(path, to_bytes(model))
    else:
        check_takes_bytes(destination)
        destination.write(to_bytes(model))


def check_takes_bytes(destination: object) -> None:
    """Check that a model can be written to an open file.

    Raises:
        UsageError: it takes text, or is no file.
    """
    if isinstance(destination, io.TextIOBase) or not hasattr(destination, "write"):
        msg = f"cannot save to a {type(destination).__name__}: give a path, or a file open for writing in mode 'wb'"
        raise UsageError(msg)
