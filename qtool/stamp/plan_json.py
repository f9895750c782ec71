"""The plan as JSON, as files store it in `extra/qtool/plan.json`; reading gives back an equal plan or an error."""

# Reading evaluates the annotations below, so they are real objects here: no `annotations` from the future.
import dataclasses
import json
from dataclasses import dataclass

from qtool.errors import FileFormatError
from qtool.plan import Plan
from qtool.stamp.strict_json import decode
from qtool.stamp.upgrades import PLAN_UPGRADES

FORMAT_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class _PlanDocument:
    format_version: int
    plan: Plan


def plan_to_json(plan: Plan) -> str:
    """Return the plan as JSON: sorted keys, ASCII, so equal plans are equal text."""
    document = _PlanDocument(format_version=FORMAT_VERSION, plan=plan)
    return json.dumps(dataclasses.asdict(document), sort_keys=True, allow_nan=False, separators=(",", ":"))


def plan_from_json(text: str | bytes, *, where: str = "plan") -> Plan:
    """Return the plan that `text` states.

    Args:
        text: JSON, UTF-8 if bytes.
        where: what to call the text in errors.

    Raises:
        FileFormatError: not JSON, another format version, a field that is missing, unknown or out of range,
            a name given twice, or a node that reads or writes an edge the plan does not have.
    """
    plan = decode(_PlanDocument, text, where=where, newest=FORMAT_VERSION, upgrades=PLAN_UPGRADES).plan
    _check_names(plan, where)
    return plan


def _check_names(plan: Plan, where: str) -> None:
    edges = {edge.name for edge in plan.edges}
    if len(edges) < len(plan.edges) or len({node.name for node in plan.nodes}) < len(plan.nodes):
        msg = f"{where}: two nodes or two edges bear one name; names must be unique"
        raise FileFormatError(msg)
    for node in plan.nodes:
        for name in (*node.inputs, *([] if node.output is None else [node.output])):
            if name not in edges:
                msg = f"{where}: node {node.name!r} names the edge {name!r}, which the plan does not have"
                raise FileFormatError(msg)
