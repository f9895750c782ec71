"""Load: a file back to a model: a prepared one to go on with, a converted one packed to run."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from torch import Tensor
from torch.utils._pytree import tree_leaves

from qtool.backends.engines import AUTO, OnMismatch
from qtool.capture.sizes import example_sizes
from qtool.errors import UsageError
from qtool.runtime.module import RuntimeModel
from qtool.runtime.prepared import PreparedModel
from qtool.runtime.store import from_bytes
from qtool.workflows.engine_cache import cache_key, cache_path, read_engines, write_engines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.runtime.converted import ConvertedModel


_ONE_AT_A_TIME = threading.RLock()
"""Held while a file is loaded: torch.export.load keeps what it is at in a variable of the process, and packing an
engine's name. Running a model needs no lock."""


def load(
    source: str | Path | bytes | BinaryIO,
    *,
    engine: str | None = None,
    release_weights: bool = True,
    on_mismatch: str = OnMismatch.ERROR,
    example: Any = None,  # noqa: ANN401 - whatever the model is called with
    cache: bool = False,
) -> PreparedModel | RuntimeModel:
    """Return the model in a file.

    Each convolution and linear layer of a converted model runs on the engine it was made for; where that one would
    saturate on this CPU, on qnnpack, and one warning names the nodes.

    Args:
        source: a path, the file's bytes, or a binary file open for reading.
        engine: run all nodes on this engine instead; `auto` times, for some seconds, the engines that are right for
            each node and takes the fastest.
        release_weights: free the original weights that qnnpack keeps beside the packed ones; False keeps them, for
            torch.jit.trace.
        on_mismatch: what becomes of nodes whose engine is missing, or computes them wrong: `error`; `fallback` runs
            them on an engine that is right; `warn` runs them as asked although their numbers may be wrong, and
            `RuntimeModel.overrides` names them.
        example: what `auto` times the model on: a tensor, or a tuple of positional arguments. None makes inputs of the
            stamped shapes, in a batch of 1.
        cache: keep what `auto` found beside the file, as `<file>.engines.json`, and take it from there on this machine.

    Returns:
        A PreparedModel for a prepared file; for a converted one a RuntimeModel, packed for its engines.

    Raises:
        UsageError: the file cannot be read; no such engine; an engine is asked for and the file is a prepared one.
        FileFormatError: not a file of qtool's, damaged, or changed since it was written.
        MissingEngineError: this torch does not have the engine.
        MismatchError: nodes would saturate silently with that engine on this CPU, or it has no kernel for them; they
            are named.
    """
    _check_auto_options(source, engine, example, cache=cache)
    with _ONE_AT_A_TIME:
        return _loaded(source, engine, _Options(on_mismatch, release_weights, example), cache=cache)


def _loaded(
    source: str | Path | bytes | BinaryIO, engine: str | None, options: _Options, *, cache: bool
) -> PreparedModel | RuntimeModel:
    model = read(source)
    if not isinstance(model, PreparedModel):
        return _load_cached(Path(source), model, options) if cache else options.packed(model, engine)  # type: ignore[arg-type]
    if engine is not None:
        msg = (
            f"a {model.stamp.stage.value} model runs on no engine, and engine {engine!r} is asked for; convert it first"
        )
        raise UsageError(msg)
    return model


@dataclass(frozen=True)
class _Options:
    on_mismatch: str
    release_weights: bool
    example: Any

    @property
    def arguments(self) -> tuple[Any, ...] | None:
        """The example as positional arguments."""
        return self.example if self.example is None or isinstance(self.example, tuple) else (self.example,)

    def packed(self, model: ConvertedModel, engine: str | None, known: Mapping[str, str] | None = None) -> RuntimeModel:
        return RuntimeModel(
            model,
            engine,
            on_mismatch=self.on_mismatch,
            release_weights=self.release_weights,
            example=self.arguments,
            known=known,
        )


def _check_auto_options(source: object, engine: str | None, example: object, *, cache: bool) -> None:
    """Refuse options of `auto` without it, and a cache of what is no file: they would be ignored."""
    if engine != AUTO and (example is not None or cache):
        name = "cache" if cache else "example"
        msg = f"{name} is used by engine='auto' alone, and engine is {engine!r}; leave it out, or ask for 'auto'"
        raise UsageError(msg)
    if cache and not isinstance(source, (str, Path)):
        msg = f"cache=True keeps a file beside the model's, and the model is a {type(source).__name__}; give a path"
        raise UsageError(msg)


def _load_cached(path: Path, model: ConvertedModel, options: _Options) -> RuntimeModel:
    """Load with `auto`, from what is kept beside the file or keeping it there."""
    tensors = [leaf for leaf in tree_leaves(options.arguments) if isinstance(leaf, Tensor)]
    shapes = [list(tensor.shape) for tensor in tensors] or [example_sizes(i, batch=1) for i in model.stamp.inputs]
    key, kept = cache_key(model.stamp.content_digest, shapes), cache_path(path)
    known = read_engines(kept, key)
    runtime = options.packed(model, AUTO, known)
    found = {name: placed.engine for name, placed in runtime.placement.items()}
    if found != known:
        write_engines(kept, key, found)
    return runtime


def read(source: str | Path | bytes | BinaryIO) -> PreparedModel | ConvertedModel:
    """Return the model in a file as it was saved: a converted one as its reference program, not packed."""
    if isinstance(source, bytes):
        data, where = source, "data"
    elif isinstance(source, (str, Path)):
        data, where = _content(Path(source)), str(source)
    else:
        _check_gives_bytes(source)
        data, where = source.read(), "data"
    with _ONE_AT_A_TIME:
        return from_bytes(data, where=where)


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
