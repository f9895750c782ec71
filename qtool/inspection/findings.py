"""The report on one file: everything `qtool inspect` tells, as frozen records; `qtool.report` turns it into words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.inspection.codes import Finding, Severity

if TYPE_CHECKING:
    from qtool.inspection.nodes import NodeReport
    from qtool.readers.facts import FileKind
    from qtool.stamp.schema import Stamp
    from qtool.types import Isa


class Outcome(StrEnum):
    """The report in one word: `unknown` is a file without a usable stamp, and never `ok`.

    `not_quantized` is one without stamp in which nothing is quantized, all of it being understood.
    """

    OK = "ok"
    FINDINGS = "findings"
    UNKNOWN = "unknown"
    NOT_QUANTIZED = "not_quantized"


class Content(StrEnum):
    """Whether the content is the one the stamp was written for."""

    VERIFIED = "verified"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the file was judged for.

    Attributes:
        backend: name of the backend; None for a file that names none, if none was asked for.
        isa: the CPU; None likewise.
        is_asked: backend or CPU were asked for; else both are the stamp's own.
    """

    backend: str | None
    isa: Isa | None
    is_asked: bool


@dataclass(frozen=True, kw_only=True)
class RangeSummary:
    """How many of the nodes that multiply codes keep their input in a reduced range.

    Attributes:
        num_nodes: nodes that multiply codes.
        reduced: names of those whose input is in a reduced range.
        num_unknown: nodes of which nothing says it.

    Example:
        >>> RangeSummary(num_nodes=3, reduced=("conv1",)).text()
        'mixed: 1 of 3 convolutions and linears reduced'
    """

    num_nodes: int
    reduced: tuple[str, ...]
    num_unknown: int = 0

    @property
    def is_mixed(self) -> bool:
        """Whether some nodes are reduced and others are not."""
        return 0 < len(self.reduced) < self.num_nodes - self.num_unknown

    def text(self) -> str:
        """Return the summary in words."""
        if not self.num_nodes:
            return "no int8 convolution or linear"
        if self.num_unknown:
            num_full = self.num_nodes - self.num_unknown - len(self.reduced)
            known = f", {len(self.reduced)} reduced, {num_full} full" if self.num_unknown < self.num_nodes else ""
            return f"unknown in {self.num_unknown} of {self.num_nodes} convolutions and linears{known}"
        if self.is_mixed:
            return f"mixed: {len(self.reduced)} of {self.num_nodes} convolutions and linears reduced"
        return f"{'reduced' if self.reduced else 'full'} in all {self.num_nodes} convolutions and linears"


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """Tensors whose bytes are equal and stored more than once.

    Attributes:
        names: the tensors; untrusted text.
        num_bytes: what one of them takes.
        wasted_bytes: what the file would be smaller by if they shared their bytes.
    """

    names: tuple[str, ...]
    num_bytes: int
    wasted_bytes: int


@dataclass(frozen=True, kw_only=True)
class FloatCopy:
    """A quantized weight that the file holds in float too.

    Attributes:
        node: the node whose weight it is.
        tensor: the float tensor; untrusted text.
        num_bytes: what it takes.
    """

    node: str
    tensor: str
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is known of one file, and where it does not fit its target.

    Attributes:
        name: the path, or `data`; untrusted text.
        kind: what the archive is.
        num_bytes: size of the file.
        bytes_by_dtype: (dtype, bytes) of its tensors, most bytes first.
        stamp: what the file says about itself, with all its nodes; None if it says nothing that can be used.
        is_recovered: the stamp is made of what the nodes in the graph say, because the file's own is lost.
        content: whether the content is the stamped one.
        target: what the file was judged for.
        findings: what is to be said, errors first.
        producer: who wrote the file; None if nothing tells. Untrusted text.
        form: what it is in one phrase; empty if there is nothing to add to its kind.
        nodes: the nodes of the model, in its order: quantized ones, and float ones with a weight or a stamp.
        num_tensors: how many tensors it stores.
        float_bytes: what its tensors would take in float32.
        duplicates: tensors stored more than once.
        float_copies: quantized weights that are stored in float too.
        is_float: nothing in it is quantized, and all of it was understood.
        fail_on: the mildest severity that makes the outcome `findings`: error or warning.
        not_understood: parts of the model that no reader knows, a line each; untrusted text.
    """

    name: str
    kind: FileKind
    num_bytes: int
    bytes_by_dtype: tuple[tuple[str, int], ...]
    stamp: Stamp | None
    is_recovered: bool = False
    content: Content
    target: Target
    findings: tuple[Finding, ...]
    producer: str | None = None
    form: str = ""
    nodes: tuple[NodeReport, ...] = ()
    num_tensors: int = 0
    float_bytes: int = 0
    duplicates: tuple[Duplicate, ...] = ()
    float_copies: tuple[FloatCopy, ...] = ()
    is_float: bool = False
    fail_on: Severity = Severity.ERROR
    not_understood: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The report in one word."""
        if self.stamp is None:
            return Outcome.NOT_QUANTIZED if self.is_float else Outcome.UNKNOWN
        return Outcome.FINDINGS if any(self.count(severity) for severity in self.failing) else Outcome.OK

    @property
    def failing(self) -> tuple[Severity, ...]:
        """The severities that make the outcome `findings`."""
        return (Severity.ERROR,) if self.fail_on is Severity.ERROR else (Severity.ERROR, Severity.WARNING)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of that severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def int8_nodes(self) -> tuple[NodeReport, ...]:
        """Return the nodes with anything quantized."""
        return tuple(node for node in self.nodes if node.is_quantized)

    def float_islands(self) -> tuple[tuple[str, int], ...]:
        """Return (reason, number of nodes) for the nodes that stay float, the most frequent first."""
        counts = Counter(node.why for node in self.nodes if not node.is_quantized)
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def range_summary(self) -> RangeSummary:
        """Return how many nodes that multiply codes are in a reduced range."""
        nodes = [node for node in self.int8_nodes() if node.multiplies_codes]
        return RangeSummary(
            num_nodes=len(nodes),
            reduced=tuple(node.name for node in nodes if node.reduce_range),
            num_unknown=sum(node.reduce_range is None for node in nodes),
        )
