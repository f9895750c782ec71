"""Files that appear whole or not at all: written to a sibling, synced, then renamed over the target.

Torch-free. Whatever ends the writing (a full disk, Ctrl-C, an error), the target is as it was before and no
partial file is left.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qtool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def check_writable(path: Path) -> None:
    """Find out before any work whether `path` could be written: a file is created beside it and removed.

    Asking the kernel by doing is the only answer that knows read-only mounts, quotas, ACLs and containers.

    Raises:
        UsageError: it is a folder, is read-only, or its folder is missing or takes no new file.

    Example:
        >>> check_writable(Path("no/such/folder/int8.pt2"))  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        qtool.errors.UsageError: cannot write 'no/such/folder/int8.pt2': there is no folder 'no/such/folder'; ...
    """
    try:
        _check_writable(path, _final_target(path))
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise _cannot_write(path, error) from error


def _check_writable(path: Path, target: Path) -> None:
    if target.is_dir():
        msg = f"cannot write {str(path)!r}: it is a folder; name a file in it"
        raise UsageError(msg)
    if target.exists() and not os.access(target, os.W_OK):
        msg = f"cannot write {str(path)!r}: it is read-only; name another file, or remove it first"
        raise UsageError(msg)
    if _is_special(target):
        return
    if not target.parent.is_dir():
        msg = f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}; make it first (mkdir -p)"
        raise UsageError(msg)
    sibling, descriptor = _new_sibling(target)
    os.close(descriptor)
    sibling.unlink()


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Make `path` hold `data`. A link is followed, an old file's permissions are kept; a device or pipe is written to.

    Raises:
        UsageError: the file cannot be written; the target is untouched and nothing is left beside it.

    Example:
        >>> write_atomically(Path("/tmp/qtool-example"), b"codes")
        >>> Path("/tmp/qtool-example").read_bytes()
        b'codes'
    """
    write_together({path: data})


def write_together(files: Mapping[Path, bytes | memoryview]) -> None:
    """Make several files hold their data: all are complete beside their targets before the first one is renamed.

    Raises:
        UsageError: one cannot be written; nothing is left beside any.
    """
    siblings: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            with _named(path):
                target = _final_target(path)
                if _is_special(target):
                    _write_through(target, data)
                else:
                    _write_sibling(target, data, siblings)
        for target, sibling in siblings.items():
            with _named(target):
                sibling.replace(target)
    finally:  # Ctrl-C too must leave no sibling behind
        for sibling in siblings.values():
            sibling.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn a failure to write into an error that names the path."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from error


def _write_sibling(target: Path, data: bytes | memoryview, siblings: dict[Path, Path]) -> None:
    """Write `data` to a file beside its target, which is noted in `siblings` from the moment it exists."""
    siblings[target], descriptor = _new_sibling(target)
    with os.fdopen(descriptor, "wb") as file:
        if target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # some filesystems report a full disk only here


def _write_through(target: Path, data: bytes | memoryview) -> None:
    with target.open("wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


def _new_sibling(target: Path) -> tuple[Path, int]:
    """Create an empty file in the target's folder, since a rename is atomic only there; the umask applies."""
    sibling = target.parent / f".qtool-{secrets.token_hex(8)}.tmp"
    return sibling, os.open(sibling, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _final_target(path: Path) -> Path:
    """Follow links, so that a link stays a link and the file that it names is replaced."""
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    """Tell devices, pipes and sockets (`/dev/null`, `>(command)`): renaming over them would destroy them."""
    return target.exists() and not target.is_file()


def _cannot_write(path: Path, error: OSError | ValueError) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"cannot write {str(path)!r}: {reason}; nothing was left behind")
