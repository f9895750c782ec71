"""A program from the bytes of an archive that was looked into: the one place where torch reads what others wrote."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.export.pt2_archive._package import load_pt2

from qtool.errors import FileFormatError, QtoolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

_MODEL = "model"
"""What `torch.export.save` names the one program of an archive."""


def load_program(data: bytes, *, where: str) -> ExportedProgram:
    """Return the program in an archive; `check_loadable` must have agreed to these very bytes.

    Where this fails, `torch.export.load` would go on and try an older form of archive, all pickles.

    Args:
        data: the bytes.
        where: what to call them in messages.

    Raises:
        FileFormatError: torch cannot make a program of it.
    """
    with parts_fit(where):
        return load_pt2(io.BytesIO(data)).exported_programs[_MODEL]


@contextmanager
def parts_fit(where: str) -> Iterator[None]:
    """Say of whatever fails in the block that the parts of the file do not fit together.

    Each part was found to be well-formed, but a file can pair any graph with any tensors, plan and arrays.

    Raises:
        FileFormatError: something failed that is no error of qtool's own.
    """
    try:
        yield
    except QtoolError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0][:200]
        msg = f"{where}: its parts do not fit together ({type(error).__name__}: {first}); it was changed, get it again"
        raise FileFormatError(msg) from error
