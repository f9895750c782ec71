"""Reads any file that `qtool inspect` can say something of: an archive, or an ONNX model."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from qtool.readers.archive import opened
from qtool.readers.onnx_file import onnx_note
from qtool.readers.onnx_graph import read_onnx
from qtool.readers.qtool_file import FileKind, QtoolFile, StampProblem, StampProblemKind, read_qtool_file, stamp_from
from qtool.stamp.schema import Stamp

if TYPE_CHECKING:
    from pathlib import Path


def read_any_file(source: Path | bytes) -> QtoolFile:
    """Return what a file says and holds, whether it is an archive or an ONNX model.

    Args:
        source: path of the file, or its bytes.

    Raises:
        UsageError: the path cannot be read.
        FileFormatError: neither of them, damaged, or refused; see docs/security.md.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else opened(source) as file:
        is_onnx = onnx_note(file) is not None
    return _onnx_file(source) if is_onnx else read_qtool_file(source)


def _onnx_file(source: Path | bytes) -> QtoolFile:
    where = "data" if isinstance(source, bytes) else str(source)
    facts = read_onnx(source, where=where)
    missing = StampProblem(StampProblemKind.MISSING, "it has no stamp")
    stamp = missing if facts.stamp_json is None else stamp_from(facts.stamp_json)
    return QtoolFile(
        where=where,
        kind=FileKind.ONNX,
        num_bytes=facts.num_bytes,
        bytes_by_dtype=facts.bytes_by_dtype,
        stamp=stamp if isinstance(stamp, Stamp) else None,
        stamp_problem=stamp if isinstance(stamp, StampProblem) else None,
        plan_json=None,
        config_json=None,
        content_digest="",
        risks=(),
        graph=facts.graph,
    )
