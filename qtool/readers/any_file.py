"""Opens any model file: told by its content, and read by who knows its format, who is imported for it alone."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.readers.archive import Archive, not_an_archive
from qtool.readers.beginnings import is_executorch, is_pickle, is_safetensors
from qtool.readers.facts import NO_MODEL, FileKind
from qtool.readers.onnx_file import is_onnx
from qtool.readers.qtool_file import archive_facts
from qtool.readers.source import OpenModel, opened_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qtool.readers.facts import ModelFacts
    from qtool.readers.source import Source


@contextmanager
def opened_model(source: Path | bytes) -> Iterator[OpenModel]:
    """Open a file and return what it says and holds; nothing in it is run, and its tensors are not read yet.

    Args:
        source: path of the file, or its bytes.

    Raises:
        UsageError: the path cannot be read.
        FileFormatError: no kind of file that is known, damaged, or refused; see docs/security.md.
    """
    with opened_source(source) as file:
        yield _open_plain(file) or _open_archive(file)


def _open_plain(source: Source) -> OpenModel | None:
    """Open a file in a format that is no archive; return None of any other."""
    if is_onnx(source):
        from qtool.readers.onnx_graph import open_onnx

        return open_onnx(source)
    if is_pickle(source):
        from qtool.readers.pickles.older_form import open_pickle

        return open_pickle(source)
    if is_executorch(source):
        from qtool.readers.executorch.file import open_executorch

        return open_executorch(source)
    if is_safetensors(source):
        from qtool.readers.safetensors.file import open_safetensors

        return open_safetensors(source)
    return None


def _open_archive(source: Source) -> OpenModel:
    with not_an_archive(source):
        archive = Archive(source.file, source.where)
    facts = archive_facts(archive)
    model = _model_in(archive, facts.kind)
    risks = tuple(dict.fromkeys((*facts.risks, *model.risks)))
    return OpenModel(dataclasses.replace(facts, model=model, risks=risks), archive.blocks)


def _model_in(archive: Archive, kind: FileKind) -> ModelFacts:
    if kind is FileKind.PT2:
        from qtool.readers.programs.model import program_model

        return program_model(archive)
    if kind is FileKind.TORCHSCRIPT:
        from qtool.readers.scripts.model import script_model

        return script_model(archive)
    if kind is FileKind.AOTI:
        from qtool.readers.compiled import compiled_model

        return compiled_model(archive)
    if kind in (FileKind.CHECKPOINT, FileKind.MODULE):
        from qtool.readers.pickles.checkpoint import read_checkpoint

        return read_checkpoint(archive)
    return NO_MODEL
