"""Inspects a file: reads it, asks every rule, and returns the report. Nothing in the file is run; no torch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from qtool.inspection.asked import settled
from qtool.inspection.codes import Severity
from qtool.inspection.duplicates import duplicates
from qtool.inspection.file_rules import FILE_RULES, is_all_float
from qtool.inspection.findings import Content, Report
from qtool.inspection.joined import joined_nodes
from qtool.inspection.meter import Meter
from qtool.inspection.model_rules import MODEL_RULES
from qtool.inspection.number_rules import NUMBER_RULES
from qtool.inspection.stamp_rules import STAMP_RULES
from qtool.inspection.target_rules import TARGET_RULES
from qtool.readers.any_file import opened_model
from qtool.readers.recovered import recovered_stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from qtool.backends.host import HostFacts
    from qtool.inspection.asked import Asked
    from qtool.inspection.codes import Finding
    from qtool.inspection.findings import FloatCopy
    from qtool.inspection.joined import JoinedNode, Measure
    from qtool.inspection.nodes import Measured
    from qtool.readers.facts import FileFacts, ModelFacts, Node
    from qtool.readers.source import OpenModel
    from qtool.types import Isa

_SEVERITIES = tuple(Severity)
_FLOAT_BYTES = 4


def inspect_file(
    source: Path | bytes,
    *,
    backend: str | None = None,
    isa: Isa | str | None = None,
    engine: str | None = None,
    on_host: bool = False,
    host: HostFacts | None = None,
    fail_on: Severity | str = Severity.ERROR,
    histograms: bool = True,
) -> Report:
    """Return what a file says and holds, and where it does not fit the target.

    Args:
        source: path of the file, or its bytes.
        backend: the backend to judge it for, several joined by commas, or `portable`; None takes the stamp's own.
        isa: the CPU to judge it for; None takes the stamp's own.
        engine: the torch engine to judge it for, which must then be on this machine; in place of a backend.
        on_host: judge it for this machine: its CPU, and the engines that it has.
        host: facts of this machine; with them, a file that it would compute wrong is a finding.
        fail_on: `error`, or `warning` for an outcome that warnings spoil too.
        histograms: count the values and scales of weights for histograms, which takes a part of the time.

    Raises:
        UsageError: the path cannot be read, a word is not known, or two of them exclude each other.
        FileFormatError: no kind of file that is known, damaged, or refused; see docs/security.md.

    Example:
        >>> report = inspect_file(Path("int8.pt2"), backend="onednn", isa="no-vnni")
        >>> [(finding.code, finding.node) for finding in report.findings]
        [('QT303', 'features.0.0')]
    """
    asked = settled(backend=backend, isa=isa, engine=engine, on_host=on_host, host=host, fail_on=fail_on)
    with opened_model(source) as model:
        report, joined = _measured(model, asked, histograms=histograms)
    findings = [*_findings(model.facts, report, joined), *_target_findings(report, asked)]
    # Stable: among findings of one severity the order of the rules and of the model stays.
    findings.sort(key=lambda finding: _SEVERITIES.index(finding.severity))
    return dataclasses.replace(report, findings=tuple(findings))


def _measured(model: OpenModel, asked: Asked, *, histograms: bool) -> tuple[Report, tuple[JoinedNode, ...]]:
    """Return the report without findings, and its nodes with both their sides."""
    file = model.facts
    stamp = file.stamp or recovered_stamp(file.graph.marks)
    meter = Meter(model, histograms=histograms)
    stored = {tensor.place or tensor.name: tensor.num_elements for tensor in file.model.tensors}  # shared bytes once
    joined = joined_nodes(stamp, file, _measurer(meter))
    twice = duplicates(file.model.tensors, meter)
    copies = _float_copies(file.model, meter)
    report = Report(
        name=file.where,
        kind=file.kind,
        num_bytes=file.num_bytes,
        bytes_by_dtype=file.model.bytes_by_dtype,
        stamp=stamp,
        is_recovered=stamp is not None and file.stamp is None,
        content=_content(file),
        target=asked.target(stamp),
        findings=(),
        producer=_producer(file),
        form=file.model.form,
        nodes=tuple(node.report for node in joined),
        num_tensors=len(file.model.tensors),
        float_bytes=_FLOAT_BYTES * sum(stored.values()),
        duplicates=twice,
        float_copies=copies,
        is_float=is_all_float(file),
        fail_on=asked.fail_on,
        not_understood=(*file.model.not_understood, *meter.problems),
    )
    return report, joined


def _producer(file: FileFacts) -> str | None:
    """Return who made the file: qtool where its stamp says so, with whose writer."""
    writer = file.model.producer
    if file.stamp is None or (writer or "").startswith("qtool"):
        return writer
    return f"qtool {file.stamp.tool_version}{f', with {writer}' if writer else ''}"


# numpy takes as long to import as all the rest to run: it is needed only where there are weights to look at.


def _measurer(meter: Meter) -> Measure:
    """Return what measures nodes."""

    def measure(node: Node, ends: tuple[int, int] | None) -> Measured:
        if not measures:
            from qtool.inspection.measure import measurer  # noqa: PLC0415

            measures.append(measurer(meter))
        return measures[0](node, ends)

    measures: list[Measure] = []
    return measure


def _float_copies(model: ModelFacts, meter: Meter) -> tuple[FloatCopy, ...]:
    if not model.nodes:
        return ()
    from qtool.inspection.copies import float_copies  # noqa: PLC0415

    return float_copies(model, meter)


def _findings(file: FileFacts, report: Report, joined: Sequence[JoinedNode]) -> Iterator[Finding]:
    """Yield what the rules say of the file, of what its stamp says, of its numbers, and of the whole model."""
    for file_rule in FILE_RULES:
        yield from file_rule(file)
    for stamp_rule in STAMP_RULES:
        for node in joined:
            yield from stamp_rule(node)
    for number_rule in NUMBER_RULES:
        for node in joined:
            yield from number_rule(node.report)
    for model_rule in MODEL_RULES:
        yield from model_rule(report)


def _target_findings(report: Report, asked: Asked) -> Iterator[Finding]:
    """Yield what the rules say of each node that runs on codes.

    Without asked backends each is judged for its own; one that says none is then judged for none.
    """
    judged = [node for node in report.nodes if node.runs_on_codes]
    questions = asked.questions(report.stamp, judged)
    for rule in TARGET_RULES:
        for node in judged:
            for name in asked.backends or node.backends:
                if name in questions:
                    yield from rule(node, questions[name])


def _content(file: FileFacts) -> Content:
    if file.stamp is None or not file.states_digest:
        return Content.UNKNOWN
    return Content.VERIFIED if file.is_content_verified else Content.DIFFERS
