"""What a file of the corpus is: how it is built, and what `qtool inspect` must say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READ, REFUSED = 1, 3
"""The exit status of a file that is read, with findings, and of one that is not read."""

Builder = Callable[[Path], bytes]
"""Gets a path with nothing there, which the file makes if any of it is executed, and returns the file's bytes."""


@dataclass(frozen=True)
class Attack:
    """One hostile file.

    Attributes:
        name: what it tries.
        build: makes it.
        status: what `qtool inspect` ends with.
        says: a regular expression that must be found in what it prints.
        file_name: its name; formats are told by content, so it says nothing.
        beside: puts other things into the file's folder, or beside that.
        slow: it takes long to build or to read: left out of `make test`.
    """

    name: str
    build: Builder
    status: int
    says: str
    file_name: str = "model"
    beside: Callable[[Path], None] | None = None
    slow: bool = False

    @property
    def slug(self) -> str:
        """Its name as a folder's."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def write(self, folder: Path) -> Path:
        """Write it, and what lies beside it, into a new folder `inside` of `folder`; return the file."""
        inside = folder / "inside"
        inside.mkdir(parents=True)
        if self.beside is not None:
            self.beside(inside)
        path = inside / self.file_name
        path.write_bytes(self.build(folder / "executed"))
        return path


def read(name: str, says: str, build: Builder, **fields: object) -> Attack:
    """Return an attack that is read without running it, and reported."""
    return Attack(name, build, READ, says, **fields)  # type: ignore[arg-type]


def refused(name: str, says: str, build: Builder, **fields: object) -> Attack:
    """Return an attack that is refused."""
    return Attack(name, build, REFUSED, says, **fields)  # type: ignore[arg-type]
