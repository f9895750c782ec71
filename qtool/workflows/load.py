"""Load: a file back to a model: a prepared one to go on with, a converted one packed to run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from qtool.backends.engines import OnMismatch
from qtool.errors import UsageError
from qtool.runtime.module import RuntimeModel
from qtool.runtime.prepared import PreparedModel
from qtool.runtime.store import from_bytes

if TYPE_CHECKING:
    from qtool.runtime.converted import ConvertedModel


def load(
    source: str | Path | bytes | BinaryIO,
    *,
    engine: str | None = None,
    release_weights: bool = True,
    on_mismatch: str = OnMismatch.ERROR,
) -> PreparedModel | RuntimeModel:
    """Return the model in a file.

    Each convolution and linear layer of a converted model runs on the engine it was made for; where that one would
    saturate on this CPU, on qnnpack, and one warning names the nodes.

    Args:
        source: a path, the file's bytes, or a binary file open for reading.
        engine: run all nodes on this engine instead.
        release_weights: free the original weights that qnnpack keeps beside the packed ones; False keeps them, for
            torch.jit.trace.
        on_mismatch: what becomes of nodes whose engine is missing, or computes them wrong: `error`; `fallback` runs
            them on an engine that is right; `warn` runs them as asked although their numbers may be wrong, and
            `RuntimeModel.overrides` names them.

    Returns:
        A PreparedModel for a prepared file; for a converted one a RuntimeModel, packed for its engines.

    Raises:
        UsageError: the file cannot be read; no such engine; an engine is asked for and the file is a prepared one.
        FileFormatError: not a file of qtool's, damaged, or changed since it was written.
        MissingEngineError: this torch does not have the engine.
        MismatchError: nodes would saturate silently with that engine on this CPU, or it has no kernel for them; they
            are named.
    """
    model = read(source)
    if not isinstance(model, PreparedModel):
        return RuntimeModel(model, engine, on_mismatch=on_mismatch, release_weights=release_weights)
    if engine is not None:
        msg = (
            f"a {model.stamp.stage.value} model runs on no engine, and engine {engine!r} is asked for; convert it first"
        )
        raise UsageError(msg)
    return model


def read(source: str | Path | bytes | BinaryIO) -> PreparedModel | ConvertedModel:
    """Return the model in a file as it was saved: a converted one as its reference program, not packed."""
    if isinstance(source, bytes):
        return from_bytes(source)
    if isinstance(source, (str, Path)):
        return from_bytes(_content(Path(source)), where=source)
    _check_gives_bytes(source)
    return from_bytes(source.read())


def _check_gives_bytes(source: object) -> None:
    if isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
        msg = f"cannot load from a {type(source).__name__}: give a path, bytes, or a file open for reading in mode 'rb'"
        raise UsageError(msg)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"cannot read {str(path)!r}: {error.strerror or error}"
        raise UsageError(msg) from error
