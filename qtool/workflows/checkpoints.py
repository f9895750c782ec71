"""The checkpoints of a training in their folder: one file an epoch, whole or not there, the last few kept."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.errors import FileFormatError, UsageError
from qtool.stamp.strict_json import NewerVersionError
from qtool.training.checkpoint import Checkpoint, to_bytes
from qtool.workflows.atomic_file import check_writable, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = re.compile(r"epoch-(\d{4,9})\.zip")


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder that a training writes its checkpoints to.

    Attributes:
        path: the folder.
        keep: how many checkpoints are kept, the last ones.
    """

    path: Path
    keep: int

    def open(self, epoch: int) -> None:
        """Make the folder, and find out before any work whether a training that has `epoch` epochs can go on in it.

        Raises:
            UsageError: it cannot be written, or holds checkpoints of later epochs, which are another training's.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"--checkpoints: cannot make the folder {str(self.path)!r}: {error.strerror or error}"
            raise UsageError(msg) from error
        check_writable(self._file(epoch + 1))
        later = [path.name for number, path in checkpoints_in(self.path).items() if number > epoch]
        if later:
            msg = (
                f"{str(self.path)!r} holds {later[-1]} already, of another training or of one that came further; go on "
                f"from it with --resume {self.path}, or name another folder with --checkpoints"
            )
            raise UsageError(msg)

    def write(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint, then remove those that are too many."""
        write_atomically(self._file(checkpoint.state.epoch), to_bytes(checkpoint))
        for path in list(checkpoints_in(self.path).values())[: -self.keep]:
            path.unlink(missing_ok=True)

    def last(self) -> Path | None:
        """Return the last checkpoint, None if there is none."""
        return next(reversed(checkpoints_in(self.path).values()), None)

    def _file(self, epoch: int) -> Path:
        return self.path / f"epoch-{epoch:04}.zip"


def is_checkpoint_name(name: str) -> bool:
    """Return whether a file of this name is taken for a checkpoint.

    Example:
        >>> is_checkpoint_name("epoch-0003.zip"), is_checkpoint_name("trained.pt2")
        (True, False)
    """
    return _NAME.fullmatch(name) is not None


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a folder by epoch, in order; empty if there is no such folder."""
    if not folder.is_dir():
        return {}
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


@contextmanager
def damage_named(file: Path | None) -> Iterator[None]:
    """Say of a file that is wrong inside that it is a checkpoint, and which one of its folder to go on from.

    Args:
        file: the checkpoint that is read in the block; None if none is.

    Raises:
        FileFormatError: whatever is wrong with the file.
    """
    try:
        yield
    except NewerVersionError:
        raise
    except FileFormatError as error:
        if file is None or not is_checkpoint_name(file.name):
            raise
        others = [path.name for path in checkpoints_in(file.parent).values() if path.name < file.name]
        advice = (
            f"delete it, and --resume {file.parent} goes on from {others[-1]}"
            if others
            else "no earlier one lies in its folder: train from the beginning, without --resume"
        )
        msg = f"the checkpoint {str(file)!r} is damaged: {str(error).removeprefix(f'{file}: ')}; {advice}"
        raise FileFormatError(msg) from error


def last_checkpoint(path: Path) -> Path:
    """Return the file of the last checkpoint: `path` itself, or the last in the folder `path`.

    Raises:
        UsageError: there is none.
    """
    if path.is_file():
        return path
    found = list(checkpoints_in(path).values())
    if not found:
        what = "has no checkpoint in it" if path.is_dir() else "does not exist"
        msg = f"--resume: {str(path)!r} {what}; it takes the folder that --checkpoints named, or a file in it"
        raise UsageError(msg)
    return found[-1]
