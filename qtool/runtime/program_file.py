"""A program from the bytes of an archive that was looked into: the one place where torch reads what others wrote."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor
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
        program = load_pt2(io.BytesIO(data)).exported_programs[_MODEL]
        _check_tensors(program, where)
    return program


def _check_tensors(program: ExportedProgram, where: str) -> None:
    """Compare each stored tensor with what the graph says of it, and with the bytes that are there for it.

    The training graph stores most of its tensors in the other archive: here they are empty.

    Raises:
        FileFormatError: another shape or dtype, or a view of fewer bytes than it has elements.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        stated = values.get(spec.arg.name)
        if not isinstance(tensor, Tensor) or tensor.numel() == 0:
            continue
        fits = isinstance(stated, Tensor) and (stated.shape, stated.dtype) == (tensor.shape, tensor.dtype)
        if not fits or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            msg = f"{where}: tensor {spec.target!r} is not of the size its graph states; it was changed, get it again"
            raise FileFormatError(msg)


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
