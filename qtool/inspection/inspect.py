"""Inspects a file: reads it, asks every rule, and returns the report. Nothing in the file is run; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends import registry
from qtool.backends.target import backends_of
from qtool.errors import UsageError, nearest
from qtool.inspection.codes import Severity
from qtool.inspection.file_rules import FILE_RULES
from qtool.inspection.findings import Content, Report, Target
from qtool.inspection.joined import joined_nodes
from qtool.inspection.target_rules import TARGET_RULES, Question
from qtool.readers.any_file import opened_model
from qtool.readers.recovered import recovered_stamp
from qtool.types import Isa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from qtool.backends.host import HostFacts
    from qtool.inspection.codes import Finding
    from qtool.inspection.nodes import NodeReport
    from qtool.readers.facts import FileFacts
    from qtool.stamp.schema import Stamp

_SEVERITIES = tuple(Severity)


def inspect_file(
    source: Path | bytes,
    *,
    backend: str | None = None,
    isa: Isa | str | None = None,
    host: HostFacts | None = None,
) -> Report:
    """Return what a file says and holds, and where it does not fit the target.

    Args:
        source: path of the file, or its bytes.
        backend: the backend to judge it for, several joined by commas, or `portable`; None takes the stamp's own.
        isa: the CPU to judge it for; None takes the stamp's own.
        host: facts of this machine; with them, a file that it would compute wrong is a finding.

    Raises:
        UsageError: the path cannot be read, or backend or ISA are not known.
        FileFormatError: the file is neither a zip nor ONNX, damaged, or refused; see docs/security.md.

    Example:
        >>> report = inspect_file(Path("int8.pt2"), backend="onednn", isa="no-vnni")
        >>> [(finding.code, finding.node) for finding in report.findings]
        [('QT303', 'features.0.0')]
    """
    asked_isa = None if isa is None else _known_isa(isa)
    asked = None if backend is None else backends_of(backend)
    for name in asked or ():
        registry.backend(name)  # a wrong name is an error before the file is opened
    with opened_model(source) as model:
        file = model.facts
    stamp = file.stamp or recovered_stamp(file.graph.marks)
    findings = [finding for rule in FILE_RULES for finding in rule(file)]
    nodes = joined_nodes(stamp, file.model)
    findings.extend(_target_findings(nodes, stamp, asked, asked_isa, host))
    # Stable: among findings of one severity the order of the rules and of the model stays.
    findings.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
    return Report(
        name=file.where,
        kind=file.kind,
        num_bytes=file.num_bytes,
        bytes_by_dtype=file.model.bytes_by_dtype,
        stamp=stamp,
        is_recovered=stamp is not None and file.stamp is None,
        content=_content(file),
        target=_target(stamp, backend, asked_isa),
        findings=tuple(findings),
        producer=file.model.producer,
        form=file.model.form,
        nodes=nodes,
        num_tensors=len(file.model.tensors),
        not_understood=file.model.not_understood,
    )


def _target_findings(
    nodes: Sequence[NodeReport],
    stamp: Stamp | None,
    asked: tuple[str, ...] | None,
    isa: Isa | None,
    host: HostFacts | None,
) -> Iterator[Finding]:
    """Yield what the rules say of each node that runs on codes.

    Without asked backends each is judged for its own; one that says none is then judged for none.
    """
    known = registry.backend_names()
    judged = [node for node in nodes if node.runs_on_codes]
    own_isa = stamp.isa if stamp else Isa.ANY
    own_backends = stamp.backends if stamp else ()
    questions = {
        name: Question(
            backend=registry.backend(name),
            isa=isa or own_isa,
            is_own=(name in own_backends) and (isa or own_isa) is own_isa,
            host_isa=None if host is None else host.isa_of(name),
        )
        for name in known
        if name in (asked or {own for node in judged for own in node.backends})
    }
    for rule in TARGET_RULES:
        for node in judged:
            for name in asked or node.backends:
                if name in questions:
                    yield from rule(node, questions[name])


def _known_isa(isa: Isa | str) -> Isa:
    names = [known.value for known in Isa]
    if isa not in names:
        msg = f"isa {str(isa)!r} is not known{nearest(str(isa), names) or '.'} Use one of: {', '.join(names)}."
        raise UsageError(msg)
    return Isa(isa)


def _target(stamp: Stamp | None, backend: str | None, isa: Isa | None) -> Target:
    own_backend = ", ".join(stamp.backends) if stamp else None
    own_isa = stamp.isa if stamp else None
    return Target(backend=backend or own_backend, isa=isa or own_isa, is_asked=bool(backend or isa))


def _content(file: FileFacts) -> Content:
    if file.stamp is None or not file.states_digest:
        return Content.UNKNOWN
    return Content.VERIFIED if file.is_content_verified else Content.DIFFERS
