"""Which nodes a reader should look at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.inspection.codes import Severity

if TYPE_CHECKING:
    from qtool.inspection.findings import Report
    from qtool.inspection.nodes import NodeReport


def nodes_that_matter(report: Report) -> tuple[NodeReport, ...]:
    """Return the float nodes of a quantized model, those a finding singles out, and the fewer of a mixed range.

    What holds for half of the nodes or more singles out none.
    """
    nodes = report.nodes
    singled_out = _named(report) | _fewer(nodes)
    is_quantized = any(node.is_quantized for node in nodes)
    return tuple(node for node in nodes if node.name in singled_out or (is_quantized and not node.is_quantized))


def _named(report: Report) -> set[str | None]:
    named = {finding.node for finding in report.findings if finding.severity is not Severity.INFO}
    return named if 2 * len(named) < len(report.nodes) else set()


def _fewer(nodes: tuple[NodeReport, ...]) -> set[str | None]:
    known = [node for node in nodes if node.multiplies_codes and node.reduce_range is not None]
    reduced: set[str | None] = {node.name for node in known if node.reduce_range}
    full: set[str | None] = {node.name for node in known if not node.reduce_range}
    return min(reduced, full, key=len)
