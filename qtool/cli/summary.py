"""What `prepare` and `convert` say about the model they wrote: a few lines for people, a mapping for JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qtool.backends.target import target_name
from qtool.cli.streams import STREAM
from qtool.errors import UsageError

if TYPE_CHECKING:
    from qtool.plan import Plan

SCHEMA_VERSION = 1
"""Of every JSON text that a command prints; rises when a key changes its meaning or goes."""

Json = Mapping[str, Any]


def summary(plan: Plan) -> dict[str, Any]:
    """Return the counts of a plan: nodes by verdict, and why the float ones are float."""
    num_int8 = len(plan.int8_nodes())
    return {
        "backend": target_name(plan.backends),
        "isa": plan.isa.value,
        "num_nodes": len(plan.nodes),
        "num_int8": num_int8,
        "num_float": len(plan.nodes) - num_int8,
        "float_islands": dict(plan.float_islands()),
        "costs": [dataclasses.asdict(cost) for cost in plan.costs],
    }


def summary_lines(output: str, num_bytes: int, facts: Json) -> str:
    r"""Return the summary for people.

    Example:
        >>> summary_lines("int8.pt2", 4200000, summary(plan))
        'int8.pt2: 4.2 MB, 64 of 65 nodes int8 for fbgemm (isa any)\n  float: 1 x softmax has no int8 kernel'
    """
    name = "standard output" if output == STREAM else output
    counts = f"{facts['num_int8']} of {facts['num_nodes']} nodes int8 for {facts['backend']} (isa {facts['isa']})"
    lines = [f"{name}: {megabytes(num_bytes)}, {counts}"]
    lines += [f"  float: {count} x {reason}" for reason, count in facts["float_islands"].items()]
    lines += [
        f"  cost of {', '.join(cost['backends'])}: {cost['what']} at {len(cost['nodes'])} nodes"
        for cost in facts["costs"]
    ]
    if "moved" in facts:
        moved = facts["moved"]
        lines.append(
            f"  moved: {moved['num_nodes']} int8 nodes made for {', '.join(moved['before'])} are now made for "
            f"{', '.join(moved['after'])}; every code, scale and range is as it was"
        )
    return "\n".join(lines)


def json_text(facts: Json) -> str:
    """Return facts as one JSON document, readable and the same for the same facts."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **facts}, indent=2, sort_keys=True, allow_nan=False)


def megabytes(num_bytes: int) -> str:
    """Return a size for people, in units of 1000.

    Example:
        >>> megabytes(18_870_000), megabytes(900)
        ('18.87 MB', '900 bytes')
    """
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    return f"{num_bytes / 1e6:.2f} MB" if num_bytes >= 1_000_000 else f"{num_bytes / 1e3:.1f} kB"


def check_one_result(output: str | None, *, as_json: bool) -> None:
    """Refuse `--json` together with `-o -`: one stdout cannot hold both.

    Raises:
        UsageError: both were asked for.
    """
    if as_json and output == STREAM:
        msg = "--json and -o - would both write to standard output; write the model to a file"
        raise UsageError(msg)
