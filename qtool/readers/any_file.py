"""Opens any model file: told by its content, and read by who knows its format."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qtool.readers.archive import Archive, not_an_archive
from qtool.readers.compiled import compiled_model
from qtool.readers.executorch.file import is_executorch, open_executorch
from qtool.readers.facts import NO_MODEL, FileKind
from qtool.readers.onnx_file import is_onnx
from qtool.readers.onnx_graph import open_onnx
from qtool.readers.pickles.checkpoint import read_checkpoint
from qtool.readers.pickles.older_form import is_pickle, open_pickle
from qtool.readers.programs.model import program_model
from qtool.readers.qtool_file import archive_facts
from qtool.readers.safetensors.file import is_safetensors, open_safetensors
from qtool.readers.scripts.model import script_model
from qtool.readers.source import OpenModel, opened_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from qtool.readers.facts import ModelFacts
    from qtool.readers.source import Source

PLAIN_FORMATS: tuple[tuple[Callable[[Source], bool], Callable[[Source], OpenModel]], ...] = (
    (is_onnx, open_onnx),
    (is_pickle, open_pickle),
    (is_executorch, open_executorch),
    (is_safetensors, open_safetensors),
)
"""Formats that are no archives: how to tell one, and who reads it."""

MODELS_IN_ARCHIVES: dict[FileKind, Callable[[Archive], ModelFacts]] = {
    FileKind.PT2: program_model,
    FileKind.CHECKPOINT: read_checkpoint,
    FileKind.MODULE: read_checkpoint,
    FileKind.AOTI: compiled_model,
    FileKind.TORCHSCRIPT: script_model,
}
"""Who reads the model in an archive, by what the archive is."""


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
        readers = [reader for is_format, reader in PLAIN_FORMATS if is_format(file)]
        yield readers[0](file) if readers else _open_archive(file)


def _open_archive(source: Source) -> OpenModel:
    with not_an_archive(source):
        archive = Archive(source.file, source.where)
    facts = archive_facts(archive)
    reader = MODELS_IN_ARCHIVES.get(facts.kind)
    model = NO_MODEL if reader is None else reader(archive)
    risks = tuple(dict.fromkeys((*facts.risks, *model.risks)))
    return OpenModel(dataclasses.replace(facts, model=model, risks=risks), archive.blocks)
