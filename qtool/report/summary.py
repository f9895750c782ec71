"""What every form of the report says first: the outcome in one sentence, and the facts of the file, as plain words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from qtool.inspection.codes import Severity
from qtool.inspection.findings import Content, Outcome
from qtool.readers.facts import Compute
from qtool.report.node_words import own_margins, worst_margin
from qtool.report.quantities import count_words, share_words, size_words
from qtool.report.untrusted import printable, shortened
from qtool.saturation.verdict import INT16_MAX, Sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.inspection.findings import Report
    from qtool.inspection.margins import Margin
    from qtool.inspection.nodes import NodeReport
    from qtool.stamp.schema import InputStamp, Stamp

_FAMILY_WORDS: Final = {
    "QT1": "is not safe to load",
    "QT2": "cannot be relied on",
    "QT3": "does not fit {target}",
    "QT4": "has wrong numbers",
}

_OUTCOME_WORDS: Final = {
    "unknown": "does not say what it was made for",
    "not_quantized": "is not quantized",
}

_COMPUTE_WORDS: Final = {
    Compute.STATIC: "static",
    Compute.DYNAMIC: "dynamic",
    Compute.WEIGHT_ONLY: "weights only",
    Compute.FAKE_QUANTIZED: "fake-quantized",
}

_CONTENT_WORDS: Final = {
    Content.VERIFIED: "verified: unchanged since it was stamped",
    Content.DIFFERS: "differs from what was stamped",
    Content.UNKNOWN: "unknown",
}
_SHOWN: Final = 3


def count_line(report: Report) -> str:
    """Return how many findings there are, for example `2 errors, 1 info`; empty if there are none."""
    counts = [(report.count(severity), severity) for severity in Severity]
    return ", ".join(
        f"{count} info" if severity is Severity.INFO else count_words(count, severity.value)
        for count, severity in counts
        if count
    )


def outcome_words(report: Report) -> str:
    """Return the outcome as the rest of a sentence that begins with the file's name."""
    target = f"{shortened(report.target.backend or '?')}, isa {report.target.isa or '?'}"
    if report.outcome is Outcome.OK:
        return f"fits {target}"
    families = sorted({finding.code[:3] for finding in report.findings if finding.severity in report.failing})
    said = {family: _FAMILY_WORDS.get(family, "has errors").format(target=target) for family in families}
    if report.outcome is Outcome.FINDINGS:
        return " and ".join(said.values())
    # What makes it so are errors too, of QT2 and QT3; whatever else is wrong with it is said before.
    others = [words for family, words in said.items() if family not in ("QT2", "QT3")]
    return " and ".join([*others, _OUTCOME_WORDS[report.outcome.value]])


def fact_rows(report: Report) -> dict[str, str]:
    """Return (label, value) of what is known of the file; the values are printable, and not escaped for any format."""
    form = f", {report.form}" if report.form else ""
    rows = {"file": f"{report.kind.value}{form}, {size_words(report.num_bytes)}"}
    if report.producer:
        rows["producer"] = report.producer
    rows |= _size_rows(report)
    if report.nodes:
        rows |= _node_rows(report)
    if report.stamp is not None:
        rows |= _stamp_rows(report, report.stamp)
    if report.stamp is not None or report.range_summary().num_nodes:
        rows["range"] = report.range_summary().text()
    said = saturation_line(report.nodes, report.target.backend if report.target.is_asked else None)
    if said:
        rows["saturation"] = said
    if report.duplicates:
        wasted = size_words(sum(each.wasted_bytes for each in report.duplicates))
        names = _some([each.names[0] for each in report.duplicates if each.names], ", ")
        rows["stored twice"] = f"{count_words(len(report.duplicates), 'tensor')}, {wasted} wasted: {names}"
    if report.not_understood:
        rows["not understood"] = _some(report.not_understood, "; ")
    return {label: shortened(value, 600) for label, value in rows.items()}


def _size_rows(report: Report) -> dict[str, str]:
    stored = sum(count for _, count in report.bytes_by_dtype)
    if not stored:
        return {}
    each = [f"{dtype} {size_words(count)} ({share_words(count, stored)})" for dtype, count in report.bytes_by_dtype]
    num = f"{report.num_tensors}: " if report.num_tensors else ""
    rows = {"tensors": num + ", ".join(each)}
    if report.float_bytes:
        share = share_words(stored, report.float_bytes)
        rows["against float"] = f"{size_words(stored)} of {size_words(report.float_bytes)} in float32, {share}"
    return rows


def _node_rows(report: Report) -> dict[str, str]:
    counts = Counter(node.compute for node in report.nodes if node.is_quantized)
    each = ", ".join(f"{count} {_COMPUTE_WORDS[compute]}" for compute, count in counts.most_common())
    total = len(report.nodes)
    left = [node for node in report.nodes if not node.is_quantized]
    reasons = Counter(node.why or node.target for node in left)
    words = _some([f"{count} x {reason}" for reason, count in reasons.most_common()], "; ")
    return {
        "quantized": f"{sum(counts.values())} of {count_words(total, 'node')}{f': {each}' if each else ''}",
        "left float": words or "none",
    }


def _stamp_rows(report: Report, stamp: Stamp) -> dict[str, str]:
    asked = f" (asked for: {report.target.backend}, isa {report.target.isa})" if report.target.is_asked else ""
    source = "from node stamps" if report.is_recovered else f"by qtool {stamp.tool_version}"
    rows = {
        "stage": f"{stamp.stage.value}, {source}",
        "made for": f"{', '.join(stamp.backends)}, isa {stamp.isa.value}{asked}",
        "content": _CONTENT_WORDS[report.content],
    }
    if not report.is_recovered:
        rows["inputs"] = "; ".join(_input_words(each) for each in stamp.inputs) or "none"
        rows["preprocessing"] = _preprocessing_words(stamp.preprocessing)
    return rows


def saturation_line(nodes: Sequence[NodeReport], asked: str | None = None) -> str:
    """Return how many layers can leave int16 on a CPU without VNNI, and which comes nearest; empty if nothing is known.

    A node counts by the asked backend, else by those it was made for, or by all where nothing says.
    """
    worst = [(margin, node) for node in nodes if (margin := worst_margin(node, asked)) is not None]
    if not worst:
        found = [margins for node in nodes if (margins := own_margins(node, asked))]
        return _exact_words(found)
    num_bad = sum(bool(margin.num_channels) for margin, _ in worst)
    margin, node = max(worst, key=lambda each: abs(each[0].worst_pair_sum or 0))
    reach = f"{shortened(node.name, 80)} reaches {margin.worst_pair_sum} of {INT16_MAX} on {margin.backend}"
    return f"without VNNI {num_bad} of {count_words(len(worst), 'layer')} can leave int16; {reach}"


def _exact_words(found: Sequence[Sequence[Margin]]) -> str:
    """Return why no layer can leave int16, where that does not hang on weights; empty where it does."""
    margins = [margin for each in found for margin in each]
    if not margins or any(margin.sums is not Sums.EXACT for margin in margins):
        return ""
    layers = count_words(len(found), "layer")
    if any(margin.adds_in_int16 for margin in margins):
        return f"none of {layers} can leave int16: their input codes are too small"
    return f"no kernel of {layers} adds in int16"


def _some(words: Sequence[str], separator: str) -> str:
    shown = separator.join(shortened(word, 120) for word in words[:_SHOWN])
    return f"{shown} and {len(words) - _SHOWN} more" if len(words) > _SHOWN else shown


def _input_words(each: InputStamp) -> str:
    return f"{shortened(each.name)} {shortened(each.dtype)} [{', '.join(shortened(str(size)) for size in each.shape)}]"


def _preprocessing_words(preprocessing: Mapping[str, object] | None) -> str:
    if not preprocessing:
        return "none stated"
    return ", ".join(f"{printable(key)} {value}" for key, value in sorted(preprocessing.items()) if value is not None)
