"""Findings as they are shown: those of one code together, and of these those of one message on one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.inspection.codes import CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.inspection.codes import Finding, Severity

_TITLES: Final = {code.name: code.title for code in CODES}


@dataclass(frozen=True, kw_only=True)
class FindingGroup:
    """All findings of one code.

    Attributes:
        code: for example `QT303`.
        severity: error, warning or info.
        title: what the code means.
        remedy: what to do.
        lines: (message, nodes it is said of) in the order of the report; no nodes for the whole file. Untrusted text.
    """

    code: str
    severity: Severity
    title: str
    remedy: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def num_nodes(self) -> int:
        """How many nodes it names."""
        return sum(len(nodes) for _, nodes in self.lines)


def finding_groups(findings: Sequence[Finding]) -> tuple[FindingGroup, ...]:
    """Return the findings by code, in the order in which the codes first occur."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    return tuple(
        FindingGroup(
            code=code,
            severity=each[0].severity,
            title=_TITLES.get(code, ""),
            remedy=each[0].remedy,
            lines=_lines(each),
        )
        for code, each in by_code.items()
    )


def _lines(findings: Sequence[Finding]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    nodes: dict[str, list[str]] = {}
    for finding in findings:
        nodes.setdefault(finding.message, []).extend([] if finding.node is None else [finding.node])
    return tuple((message, tuple(dict.fromkeys(names))) for message, names in nodes.items())
