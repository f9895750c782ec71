"""The three standard streams of a command: models come in on stdin, results alone go out on stdout.

Everywhere a file is named, `-` stands for the stream. Model factories, data sources and imports print as they
like; so that no byte of theirs ends up inside a model or a JSON text, file descriptor 1 points to stderr while
they run and only `Stdout` knows the real one.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from qtool.cli.signals import end_if_asked
from qtool.errors import UsageError, nearest
from qtool.workflows.atomic_file import check_writable, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STREAM = "-"
"""The file name that means stdin or stdout."""


def read_input(file: str) -> Path | bytes:
    """Return what the argument FILE names: the path of a file that can be read, or for `-` all bytes of stdin.

    Raises:
        UsageError: no such file, it cannot be read, or nothing comes from stdin.
    """
    if file == STREAM:
        return _read_stdin()
    if not file:
        msg = "the name of the file is empty; name one, or - for standard input"
        raise UsageError(msg)
    path = Path(file)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            return _not_empty(path.read_bytes())  # a pipe, `<(command)`: it can be opened only once
        with path.open("rb"):
            return path
    except IsADirectoryError as error:
        msg = f"{file!r} is a folder; name a file in it"
        raise UsageError(msg) from error
    except FileNotFoundError as error:
        msg = f"there is no file {file!r}{nearest(path.name, _names_beside(path))}"
        raise UsageError(msg) from error
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        msg = f"cannot read {file!r}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error


def check_output(file: str, *, sources: Iterable[Path] = ()) -> None:
    """Find out before any work whether `-o FILE` could be written.

    Args:
        file: what `-o` names.
        sources: files that the command reads, which its result must not replace.

    Raises:
        UsageError: binary output would go to a terminal, the file cannot be written, or it is one of the sources.
    """
    if not file:
        msg = "-o: the name of the file is empty; name one, or - for standard output"
        raise UsageError(msg)
    if file != STREAM:
        check_is_no_source(Path(file), sources, "-o")
        check_writable(Path(file))
    elif sys.stdout is not None and sys.stdout.isatty():
        msg = (
            "a model is binary and standard output is a terminal; "
            "write it to a file (-o FILE), or pipe it into the next command"
        )
        raise UsageError(msg)


def check_is_no_source(path: Path, sources: Iterable[Path], option: str) -> None:
    """Refuse to write to a file that the command reads.

    Args:
        path: what would be written to.
        sources: files that the command reads.
        option: what named `path`, such as `-o`.

    Raises:
        UsageError: `path` is one of the sources, by whatever name.
    """
    if any(_is_same_file(path, source) for source in sources):
        msg = f"{str(path)!r} is read by this command and would be lost; name another file with {option}"
        raise UsageError(msg)


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False  # one of them is not there


def write_output(file: str, data: bytes | memoryview, stdout: Stdout) -> None:
    """Write a whole model to `-o FILE`: a file appears whole or not at all."""
    end_if_asked()
    if file == STREAM:
        stdout.write(data)
    else:
        write_atomically(Path(file), data)


@dataclass(frozen=True)
class Stdout:
    """The real standard output, known to nobody else while a command runs.

    Attributes:
        descriptor: a private copy of file descriptor 1, or None where stdout is no file (under a test runner).
        stream: where bytes go without a descriptor.
        encoding: of text.
        is_terminal: somebody reads it on a screen.
    """

    descriptor: int | None
    stream: BinaryIO | None
    encoding: str
    is_terminal: bool

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`, unbuffered, so that a failure shows here and not when Python exits.

        Raises:
            UsageError: the disk behind stdout is full, or stdout cannot be written.
            BrokenPipeError: the reader went away.
        """
        if self.descriptor is None:
            assert self.stream is not None
            self.stream.write(data)
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            msg = f"cannot write to standard output: {error.strerror or error}"
            raise UsageError(msg) from error

    def write_text(self, text: str) -> None:
        """Write `text` and a line end where it has none; a character that the encoding lacks becomes `?`."""
        line = text if text.endswith("\n") else f"{text}\n"
        self.write(line.encode(self.encoding, errors="replace"))


@contextmanager
def claimed_stdout() -> Iterator[Stdout]:
    """Keep stdout for results: until the end of the block, all other writing to it goes to stderr.

    That holds for `print`, for C and C++ code, and for processes started meanwhile.

    Raises:
        UsageError: the caller closed stdout (`>&-`).
    """
    if sys.stdout is None:
        msg = "standard output is closed; results have nowhere to go"
        raise UsageError(msg)
    python_stdout = sys.stdout
    python_stdout.flush()
    is_process_stdout = _descriptor_of(python_stdout) == 1
    real = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield Stdout(
            descriptor=real if is_process_stdout else None,
            stream=None if is_process_stdout else python_stdout.buffer,
            encoding=python_stdout.encoding or "utf-8",
            is_terminal=python_stdout.isatty(),
        )
    finally:
        sys.stdout = python_stdout
        python_stdout.flush()  # to stderr: somebody may have kept the old sys.stdout and written to it
        os.dup2(real, 1)
        os.close(real)


def open_missing_descriptors() -> None:
    """Open descriptors 0 to 2 where the caller closed them.

    Otherwise the next file that is opened becomes one of them, and messages are written into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def retire_stdout() -> None:
    """Give descriptor 1 to stderr for good, when the results are out.

    Exit handlers may print, and what C code has printed waits in a buffer of its own until the process ends.
    """
    target = 2
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            # What could not be written would be tried again, with a complaint, when Python exits.
            target = os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, 1)


def has_stdout_reader() -> bool:
    """Tell whether somebody still reads stdout; False once the pipe's other end is closed."""
    descriptor = _descriptor_of(sys.stdout)
    if descriptor is None:
        return True
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _read_stdin() -> bytes:
    if sys.stdin is None:
        msg = "'-' reads standard input, but it is closed"
        raise UsageError(msg)
    if sys.stdin.isatty():
        msg = "'-' reads standard input, but that is a terminal; pipe something in, or name a file"
        raise UsageError(msg)
    try:
        return _not_empty(sys.stdin.buffer.read())
    except OSError as error:
        msg = f"cannot read standard input: {error.strerror or error}"
        raise UsageError(msg) from error


def _not_empty(data: bytes) -> bytes:
    if not data:
        msg = "nothing came in: the command before failed, and its message says why"
        raise UsageError(msg)
    return data


def _names_beside(path: Path) -> list[str]:
    with suppress(OSError):
        return [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return []


def _descriptor_of(stream: object) -> int | None:
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return None  # a test runner's stream is no file
