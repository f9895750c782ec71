"""The plan as text, for `qtool prepare --dry-run`; as JSON it is `qtool.stamp.plan_json.plan_to_json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from qtool.backends.target import target_name
from qtool.report.console import render
from qtool.report.node_table import NodeCells, TensorCells, node_table
from qtool.report.untrusted import shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qtool.plan import NodePlan, Plan, TargetCost
    from qtool.types import Spec

DEFAULT_WIDTH = 160

SHOWN = 3
"""Names of nodes in one line; they come in dozens."""


def render_plan(plan: Plan, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """Return what becomes of every node and tensor, and a summary with the float islands.

    Args:
        plan: the plan.
        width: columns that a line may have.
        color: write ANSI colours.
    """
    parts = node_table([_node_cells(node, plan) for node in plan.nodes], width=width)
    return render([*parts, Text(), *_summary(plan)], width=width, color=color)


def _summary(plan: Plan) -> list[RenderableType]:
    num_int8 = len(plan.int8_nodes())
    islands = plan.float_islands()
    head = f"{num_int8} of {len(plan.nodes)} nodes int8 for {target_name(plan.backends)}, isa {plan.isa.value}"
    lines: list[RenderableType] = [Text(f"{head}; float islands: {sum(islands.values())}", style="bold")]
    ordered = sorted(islands.items(), key=lambda item: (-item[1], item[0]))
    lines += [Text(f"  {count} x {shortened(reason)}") for reason, count in ordered]
    lines += [Text(f"  cost of {', '.join(cost.backends)}: {_cost_words(cost)}") for cost in plan.costs]
    if plan.training_only:
        shown = ", ".join(plan.training_only[:SHOWN]) + (" ..." if len(plan.training_only) > SHOWN else "")
        lines.append(Text(f"only in train mode, and float there: {len(plan.training_only)} ops: {shortened(shown)}"))
    return lines


def _cost_words(cost: TargetCost) -> str:
    shown = ", ".join(cost.nodes[:SHOWN]) + (" ..." if len(cost.nodes) > SHOWN else "")
    return f"{cost.what} at {len(cost.nodes)} nodes: {shortened(shown)}"


def _node_cells(node: NodePlan, plan: Plan) -> NodeCells:
    inputs = [plan.edge(name).spec for name in node.inputs]
    tensors = [_tensor_cells("input", spec) for spec in inputs]
    if node.weight is not None:
        tensors.append(_tensor_cells("weight", node.weight))
    if node.output is not None:
        tensors.append(_tensor_cells("output", plan.edge(node.output).spec))
    kind = "depthwise " if node.depthwise else ""
    parts = [f"{kind}{node.op.value if node.op else node.target}", *(["batch_norm"] if node.batch_norm else [])]
    parts += [node.activation] if node.activation else []
    ranges = dict.fromkeys(spec.why for spec in inputs if spec.why)
    return NodeCells(
        name=node.name,
        compute=node.verdict.value,
        pattern=" + ".join(parts),
        backend=target_name(plan.backends) if tensors else "-",
        why="; ".join([node.reason, *ranges]),
        tensors=tuple(tensors),
    )


def _tensor_cells(role: str, spec: Spec) -> TensorCells:
    reduced = "yes" if spec.reduce_range else "no"
    return TensorCells(
        tensor=role,
        dtype=spec.dtype.value,
        qmin=str(spec.qmin),
        qmax=str(spec.qmax),
        granularity=spec.granularity.value,
        axis="" if spec.axis is None else str(spec.axis),
        reduce_range="" if role == "weight" else reduced,
    )
