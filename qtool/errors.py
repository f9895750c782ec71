"""Every error that qtool raises on purpose, each with the exit status it ends a command with.

A message says what is wrong with which value, what is allowed, and what to do. Errors that stand for a
well-known kind of mistake also derive from the builtin of that kind, so library users can catch either.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_MODEL = 3
EXIT_MISSING = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class QtoolError(Exception):
    """Base of all errors a user can cause; `exit_code` is the status a command ends with."""

    exit_code = EXIT_MODEL


class QtoolWarning(UserWarning):
    """Something was done as asked, and is likely not what was meant."""


class UsageError(QtoolError, ValueError):
    """An option, argument or file name is wrong."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A configuration is wrong; `problems` holds every fault found, each located.

    Example:
        >>> ConfigError(["c.yaml:3:5: target.backend: 'qnpack' is not a backend"]).problems
        ("c.yaml:3:5: target.backend: 'qnpack' is not a backend",)
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class ModelError(QtoolError):
    """The model cannot be processed as asked."""


class CaptureError(ModelError):
    """torch.export could not turn the model into a graph that qtool can work on."""


class UncalibratedError(ModelError, RuntimeError):
    """Observers saw no data; `nodes` names them."""

    def __init__(self, message: str, nodes: Iterable[str]) -> None:
        self.nodes = tuple(nodes)
        super().__init__(message)


class NonFiniteError(ModelError, RuntimeError):
    """NaN or infinity reached an observer."""


class RangeError(ModelError, ValueError):
    """An integer range, scale or zero point contradicts itself or its dtype."""


class DtypeError(ModelError, TypeError):
    """A tensor has a dtype that cannot be observed or quantized."""


class DataError(QtoolError, ValueError):
    """Calibration or evaluation data cannot be read."""


class SmallBatchError(DataError):
    """A batch norm has a single value per channel to normalize over; `found` says which and in what shape."""

    def __init__(self, found: str, advice: str) -> None:
        self.found = found
        super().__init__(f"{found}; {advice}")


class FileFormatError(QtoolError, ValueError):
    """A file is not what its reader expects, is damaged, or does not match its own stamp."""


class MismatchError(QtoolError, RuntimeError):
    """A file was made for another target than the one it is asked to run on."""


class MissingDependencyError(QtoolError, ImportError):
    """An optional package is not installed or too old."""

    exit_code = EXIT_MISSING


class MissingIsaError(QtoolError, RuntimeError):
    """This machine's CPU lacks the instructions that are asked for."""

    exit_code = EXIT_MISSING


class MissingEngineError(QtoolError, RuntimeError):
    """The engine asked for does not exist in this torch build or on this machine."""

    exit_code = EXIT_MISSING


def nearest(name: str, allowed: Iterable[str], *, limit: int = 1) -> str:
    """Return `; did you mean 'x'?` for the allowed names closest to `name`, or an empty string.

    Example:
        >>> nearest("qnpack", ["fbgemm", "qnnpack"])
        "; did you mean 'qnnpack'?"
    """
    by_lower = {choice.lower(): choice for choice in allowed}
    close = [by_lower[match] for match in get_close_matches(name.lower(), list(by_lower), n=limit, cutoff=0.5)]
    if not close:
        return ""
    return f"; did you mean {' or '.join(repr(match) for match in close)}?"
