"""Tells formats that are no archives by how a file begins; ONNX, which has no mark, is told in onnx_file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtool.readers.source import Source

_START_BYTES: Final = 512
_LAST_PROTOCOL: Final = 5
_NAMES_FIRST: Final = re.compile(rb"[(\]}]*c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n")
_TAR_OFFSET: Final = 257
_TAR_MAGIC: Final = b"ustar"
_TAR_FIRST: Final = (b"storages", b"./storages", b"sys_info", b"./sys_info")
"""First entry of the oldest form of torch.save."""
_EXECUTORCH: Final = re.compile(rb".{4}ET\d\d", re.S)
_SAFETENSORS: Final = re.compile(rb".{8}[{\[]\s*[\"{}\[\]]", re.S)
"""Eight bytes of length, and the beginning of a JSON object; a list is refused by name."""


def is_pickle(source: Source) -> bool:
    """Return whether a file begins like a pickle, or is the tar form of torch.save.

    All pickles since protocol 2 begin with its number; of older ones those that name something first are told.
    """
    start = _start(source)
    has_number = len(start) > 2 and start[0] == 0x80 and 1 <= start[1] <= _LAST_PROTOCOL
    return has_number or bool(_NAMES_FIRST.match(start)) or is_tar(source)


def is_tar(source: Source) -> bool:
    """Return whether a file is the tar that torch.save wrote before torch 0.4."""
    start = _start(source)
    return start[_TAR_OFFSET:].startswith(_TAR_MAGIC) and start.startswith(_TAR_FIRST)


def is_executorch(source: Source) -> bool:
    """Return whether a file is an ExecuTorch program, or looks as if it should be."""
    return bool(_EXECUTORCH.match(_start(source)))


def is_safetensors(source: Source) -> bool:
    """Return whether a file is in the safetensors format, or looks as if it should be."""
    return bool(_SAFETENSORS.match(_start(source)))


def _start(source: Source) -> bytes:
    return source.read(0, min(source.num_bytes, _START_BYTES))
