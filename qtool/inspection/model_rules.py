"""Rules on the model as a whole: what lies beside what, what is stored twice, and what nobody could read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.inspection import codes
from qtool.inspection.nodes import Origin
from qtool.readers.facts import Compute
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.inspection.codes import Finding
    from qtool.inspection.findings import Report

_CONVERTED: Final = (Compute.STATIC, Compute.DYNAMIC)
_BATCH_NORM: Final = re.compile(r"batch_?norm", re.IGNORECASE)


def not_understood(report: Report) -> Iterator[Finding]:
    """Yield the parts that no reader knows."""
    for part in report.not_understood:
        yield codes.NOT_UNDERSTOOD.finding(part)


def nodes_without_stamp(report: Report) -> Iterator[Finding]:
    """Yield the nodes of a stamped file that run on codes, and of which its stamp says nothing."""
    if report.stamp is None or report.is_recovered:
        return
    for node in report.nodes:
        if node.origin is Origin.UNKNOWN and node.runs_on_codes:
            yield codes.UNMARKED_LAYERS.finding("it runs on codes, and the stamp does not name it", node=node.name)


def float_copies(report: Report) -> Iterator[Finding]:
    """Yield quantized weights that the file holds in float too."""
    for copy in report.float_copies:
        yield codes.FLOAT_COPY.finding(f"{copy.tensor} holds the same weight, {copy.num_bytes} bytes", node=copy.node)


def batch_norms(report: Report) -> Iterator[Finding]:
    """Yield batch norms that read a quantized convolution or linear; in training they have their place there."""
    quantized = {node.name for node in report.nodes if node.op in MAC_OPS and node.compute in _CONVERTED}
    for node in report.nodes:
        for name in node.reads if _BATCH_NORM.search(node.target) else ():
            if name in quantized:
                yield codes.BATCH_NORM.finding(f"batch norm {node.name} reads it", node=name)


def stored_twice(report: Report) -> Iterator[Finding]:
    """Yield tensors whose bytes are there more than once."""
    for each in report.duplicates:
        yield codes.STORED_TWICE.finding(
            f"{', '.join(each.names)}: {each.num_bytes} bytes each, {each.wasted_bytes} of them for nothing"
        )


MODEL_RULES: tuple[Callable[[Report], Iterator[Finding]], ...] = (
    not_understood,
    nodes_without_stamp,
    float_copies,
    batch_norms,
    stored_twice,
)
