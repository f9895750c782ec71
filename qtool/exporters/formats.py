"""The formats that a converted model can be exported to, and what each needs. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Final

from qtool.errors import MissingDependencyError, UsageError, nearest


class Format(StrEnum):
    """Files that other runtimes read."""

    ONNX = "onnx"
    PT2 = "pt2"
    TORCHSCRIPT = "torchscript"


PACKAGES: Final = {Format.ONNX: ("onnx", "onnxscript"), Format.PT2: (), Format.TORCHSCRIPT: ()}
"""Optional packages that writing each format needs."""

RUNTIME_PACKAGES: Final = {Format.ONNX: ("onnxruntime",), Format.PT2: (), Format.TORCHSCRIPT: ()}
"""Optional packages that running each format needs."""

OPSET: Final = 20
"""Newest that ONNX Runtime 1.32 runs in full: from 21 on, the QuantizeLinear it puts behind a Reshape of int8 codes
has an `output_dtype` that it then refuses. Source: MakeQAttrsFromDQ in onnxruntime's qdq_propagation.cc."""

OLDEST_OPSET: Final = 13
"""DequantizeLinear got its `axis` with opset 13, and without it there is no per-channel weight."""

NEWEST_OPSET: Final = 23
"""Newest that torch's exporter and ONNX Runtime 1.32 both know."""


@dataclass(frozen=True)
class ExportedModel:
    """A model as the bytes of its files.

    Attributes:
        data: the file.
        external: the weights beside it, where they do not fit into it.
    """

    data: bytes
    external: bytes | None = None


def known_format(name: object) -> Format:
    """Return the format of that name.

    Raises:
        UsageError: there is none, or it is no word.
    """
    names = [known.value for known in Format]
    if not isinstance(name, str):
        msg = f"format {name!r} is a {type(name).__name__}; use one of the words {', '.join(names)}"
        raise UsageError(msg)
    if name not in names:
        msg = f"format {name!r} is not known{nearest(name, names) or '.'} Use one of: {', '.join(names)}."
        raise UsageError(msg)
    return Format(name)


def check_opset(opset: object, wanted: Format) -> None:
    """Check that an opset can hold what qtool writes.

    Raises:
        UsageError: it is too old or too new or no whole number, or the format has none.
    """
    if opset is None:
        return
    if not isinstance(opset, int) or isinstance(opset, bool):
        msg = f"opset {opset!r} is a {type(opset).__name__}; give a whole number, {OLDEST_OPSET} to {NEWEST_OPSET}"
        raise UsageError(msg)
    if wanted is not Format.ONNX:
        msg = f"--opset {opset} is for ONNX files; a {wanted.value} file has no opset: leave it out"
        raise UsageError(msg)
    if opset < OLDEST_OPSET:
        msg = (
            f"opset {opset} is too old: per-channel weights need opset {OLDEST_OPSET}, where DequantizeLinear got its "
            f"axis; use --opset {OLDEST_OPSET} or newer (the default is {OPSET})"
        )
        raise UsageError(msg)
    if opset > NEWEST_OPSET:
        msg = f"opset {opset} is too new: {OLDEST_OPSET} to {NEWEST_OPSET} are known (the default is {OPSET})"
        raise UsageError(msg)


def check_engine_option(engine: object, wanted: Format) -> None:
    """Check that an engine is a word, and asked for by a format whose weights are packed for one.

    Raises:
        UsageError: it is not, or the format has none.
    """
    if engine is None:
        return
    if not isinstance(engine, str):
        msg = f"engine {engine!r} is a {type(engine).__name__}; give the name of a torch engine, or None"
        raise UsageError(msg)
    if wanted is not Format.TORCHSCRIPT:
        msg = f"--engine {engine} is for TorchScript; {wanted.value} files hold no packed weights: leave it out"
        raise UsageError(msg)


def check_packages(wanted: Format, *, to_run: bool = False) -> None:
    """Check that the optional packages are there.

    Args:
        wanted: the format.
        to_run: the file is to be run too.

    Raises:
        MissingDependencyError: some are not installed; the message has the line that installs them.
    """
    needed = (*PACKAGES[wanted], *(RUNTIME_PACKAGES[wanted] if to_run else ()))
    missing = [name for name in needed if not _is_importable(name)]
    if missing:
        msg = (
            f"format {wanted.value!r} needs {' and '.join(missing)}, not installed here: "
            f"python -m pip install {' '.join(missing)}"
        )
        raise MissingDependencyError(msg)


def _is_importable(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True
