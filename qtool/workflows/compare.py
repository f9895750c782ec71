"""Compares two files, whatever wrote them. Nothing in either is run; torch-free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qtool.inspection.compare import compared
from qtool.inspection.stored_numbers import compared_numbers
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Place
from qtool.readers.source import opened_source
from qtool.workflows.inspect import inspect

if TYPE_CHECKING:
    import os

    from qtool.inspection.compare import Comparison
    from qtool.types import Isa


def compare(
    first: str | os.PathLike[str] | bytes,
    second: str | os.PathLike[str] | bytes,
    *,
    backend: str | None = None,
    isa: Isa | str | None = None,
) -> Comparison:
    """Return what differs between two files: nodes, ranges, scales, sizes, stored numbers, and what was found.

    Args:
        first: path of a file, or its bytes.
        second: likewise.
        backend: the backend both are judged for; None is what each was made for.
        isa: the CPU both are judged for; None likewise.

    Raises:
        UsageError: no such file, backend or ISA.
        FileFormatError: a file is damaged, or refused; see docs/security.md.

    Example:
        >>> compare("before.pt2", "after.pt2").sameness.value
        'different'
    """
    reports = [inspect(source, backend=backend, isa=isa) for source in (first, second)]
    sources = [source if isinstance(source, bytes) else Path(source) for source in (first, second)]
    with opened_model(sources[0]) as one, opened_model(sources[1]) as other:
        numbers = compared_numbers(one, other)
        has_data_beside = not (one.facts.states_digest and other.facts.states_digest)
    return compared(
        *reports, numbers=numbers, is_same_content=not has_data_beside and _is_same_file(sources[0], sources[1])
    )


def _is_same_file(first: Path | bytes, second: Path | bytes) -> bool:
    """Return whether the bytes are the same; of files with data beside them that says nothing."""
    with opened_source(first) as one, opened_source(second) as other:
        if one.num_bytes != other.num_bytes:
            return False
        whole = Place(part="", offset=0, num_bytes=one.num_bytes)
        return all(ours == theirs for ours, theirs in zip(one.blocks(whole), other.blocks(whole), strict=True))
