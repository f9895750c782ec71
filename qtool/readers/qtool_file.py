"""Reads one of qtool's .pt2 files with the standard library alone: its stamp, plan, config, sizes and digest.

Reading never fails for what a report should tell instead: a missing stamp, a newer one, a digest that differs are
part of the result. `check_loadable` turns them into errors, for whoever is about to run the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.errors import FileFormatError
from qtool.readers.advice import WITHOUT_STAMP
from qtool.readers.archive import read_archive
from qtool.readers.entries import COMPILED_FOLDER, PICKLE_ENTRY
from qtool.readers.facts import FileFacts, FileKind, StampProblem, StampProblemKind
from qtool.readers.marks import NOTHING, GraphFacts
from qtool.readers.program_risks import find_risks
from qtool.readers.programs.tables import stored_tensors
from qtool.stamp.digest import combine_digests
from qtool.stamp.schema import CONFIG_ENTRY, PLAN_ENTRY, STAMP_ENTRY, Stamp, from_json
from qtool.stamp.strict_json import NewerVersionError

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.readers.archive import Archive


def read_qtool_file(source: Path | bytes, *, where: str | None = None) -> FileFacts:
    """Return what a file says and holds; no entry but the texts is ever in memory whole.

    Args:
        source: path of the file, or its bytes.
        where: what to call it in messages; None takes the path, or `data`.

    Raises:
        UsageError: the path cannot be read.
        FileFormatError: not a zip, damaged, or refused; see docs/security.md.
    """
    with read_archive(source, where=where) as archive:
        return archive_facts(archive)


def archive_facts(archive: Archive) -> FileFacts:
    """Return what an archive says and holds; its model is not looked at.

    Raises:
        FileFormatError: it is damaged, or refused.
    """
    # The digest comes first: it reads every entry, so a damaged one is found before its content is believed.
    digest = combine_digests({name: archive.sha256(name) for name in archive.names})
    stamp = _read_stamp(archive)
    kind = _kind(archive)
    stored_tensors(archive)  # one that does not fit into its entry is an error, before anything loads it
    return FileFacts(
        where=archive.where,
        kind=kind,
        num_bytes=archive.num_bytes,
        stamp=stamp if isinstance(stamp, Stamp) else None,
        stamp_problem=stamp if isinstance(stamp, StampProblem) else None,
        plan_json=_read_text(archive, PLAN_ENTRY),
        config_json=_read_text(archive, CONFIG_ENTRY),
        content_digest=digest,
        risks=find_risks(archive),
        graph=NOTHING if isinstance(stamp, Stamp) else _graph_facts(archive, kind),
    )


def check_loadable(file: FileFacts) -> Stamp:
    """Return the stamp of a file that torch may load: written by qtool, unchanged since, and nothing in it is run.

    The bytes checked must be the bytes loaded: read the file once, and give the same bytes to `read_qtool_file`
    and to torch.

    Raises:
        FileFormatError: no usable stamp, a content that differs from it, or something that loading would execute.
    """
    if file.stamp is None:
        problem = file.stamp_problem or StampProblem(StampProblemKind.MISSING, "it has no stamp")
        is_missing = problem.kind is StampProblemKind.MISSING
        note = f"; {WITHOUT_STAMP.get(file.kind, 'only files that qtool wrote are loaded')}" if is_missing else ""
        msg = f"{file.where}: {problem.message}{note}"
        raise FileFormatError(msg)
    if not file.is_content_verified:
        msg = (
            f"{file.where}: the content is not what the stamp was written for (sha256 {file.content_digest[:12]}..., "
            f"stamped {file.stamp.content_digest[:12] or 'nothing'}...); it was damaged or changed, get it again"
        )
        raise FileFormatError(msg)
    if file.risks:
        first = file.risks[0]
        msg = (
            f"{file.where}: loading it would execute {len(file.risks)} things it says, first {first.detail!r} "
            f"({first.kind.value}) in {first.entry!r}; qtool writes no such files, so it was changed"
        )
        raise FileFormatError(msg)
    return file.stamp


def _read_stamp(archive: Archive) -> Stamp | StampProblem:
    # Without one root for all, torch could see other entries than we do: it takes the first entry's folder.
    if not archive.root or STAMP_ENTRY not in archive.names:
        return StampProblem(StampProblemKind.MISSING, "it has no stamp")
    return stamp_from(archive.read(STAMP_ENTRY))


def stamp_from(text: bytes) -> Stamp | StampProblem:
    """Return the stamp that a text states, or why there is none."""
    try:
        return from_json(text)
    except NewerVersionError as error:
        return StampProblem(StampProblemKind.NEWER, str(error))
    except FileFormatError as error:
        return StampProblem(StampProblemKind.UNREADABLE, str(error))


def _graph_facts(archive: Archive, kind: FileKind) -> GraphFacts:
    if kind is FileKind.PT2:
        from qtool.readers.program_marks import program_facts

        return program_facts(archive)
    if kind is FileKind.TORCHSCRIPT:
        from qtool.readers.script_marks import script_facts

        return script_facts(archive)
    if kind is FileKind.AOTI:
        from qtool.readers.compiled import compiled_marks

        return compiled_marks(archive)
    return NOTHING


def _read_text(archive: Archive, name: str) -> str | None:
    """Return an entry as text; what is not UTF-8 becomes text that no parser takes."""
    return archive.read(name).decode("utf-8", "replace") if name in archive.names else None


def _kind(archive: Archive) -> FileKind:
    names = archive.names
    if any(name.startswith("models/") and name.endswith(".json") for name in names):
        return FileKind.PT2
    if any(name.startswith(COMPILED_FOLDER) for name in names):
        return FileKind.AOTI
    if PICKLE_ENTRY not in names:
        return FileKind.ZIP
    if any(name.startswith("code/") for name in names):
        return FileKind.TORCHSCRIPT
    from qtool.readers.pickles.checkpoint import holds_object

    return FileKind.MODULE if holds_object(archive) else FileKind.CHECKPOINT
