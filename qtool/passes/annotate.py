"""Annotate: lay backend rules and config over the graph. The result, a Plan, is data; nothing is edited here.

graph -> matches -> verdicts -> quantized edges, in groups that share a scale -> plan
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from qtool.backends import ranges
from qtool.backends.target import target
from qtool.config.select import unmatched_patterns
from qtool.errors import ConfigError
from qtool.observers.registry import DEFAULT_WEIGHT_OBSERVER
from qtool.passes.edges import input_edges, output_edge, quantized_edges
from qtool.passes.match import match_patterns
from qtool.passes.naming import node_names
from qtool.passes.tied_weights import tied_notes
from qtool.passes.verdicts import Request, decide
from qtool.plan import NodePlan, Plan
from qtool.types import MAC_OPS, Granularity, Isa

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import fx
    from torch.fx import Node

    from qtool.config.schema import QuantizeConfig
    from qtool.passes.match import Match
    from qtool.passes.verdicts import Decision
    from qtool.plan import EdgePlan
    from qtool.types import Spec


def annotate(
    graph: fx.Graph,
    quantize: QuantizeConfig,
    *,
    backends: Sequence[str],
    isa: Isa,
    keep_float: Mapping[str, str] | None = None,
    proved_safe: Collection[str] = (),
) -> Plan:
    """Return the plan for a functional graph: a verdict with its reason for every op, a spec for every int8 edge.

    Args:
        graph: the graph of `FloatProgram.graph_module()`.
        quantize: the `quantize` section of the config.
        backends: names of the backends to plan for; the plan keeps to the rules of all.
        isa: the CPU the model will run on.
        keep_float: names of nodes that stay float whatever the rules say, each with the reason.
        proved_safe: names of nodes whose weights are proved not to saturate with all codes of the input.

    Raises:
        UsageError: a backend is unknown, or cannot do what the config asks for.
        ConfigError: a pattern of the config matches no node.
    """
    request = Request(
        backend=target(backends),
        isa=isa,
        quantize=quantize,
        keep_float=keep_float or {},
        proved_safe=frozenset(proved_safe),
    )
    names = node_names(graph)
    matches = match_patterns(graph)
    _check_patterns(matches, names, request)
    decisions = decide(matches, names, request)
    int8 = tuple(match for match in matches if decisions[match].is_int8)
    for match, note in tied_notes(matches, int8, names).items():
        decisions[match] = replace(decisions[match], reason=f"{decisions[match].reason}; {note}")
    edges = quantized_edges(int8, names, request)
    nodes = tuple(_node_plan(match, decisions[match], names[match.node], edges, request) for match in matches)
    return Plan(backends=tuple(backends), isa=isa, nodes=nodes, edges=tuple(edges.values()))


def _check_patterns(matches: tuple[Match, ...], names: Mapping[Node, str], request: Request) -> None:
    problems = unmatched_patterns(request.quantize, [(names[match.node], match.op) for match in matches])
    if problems:
        raise ConfigError(problems)


def _node_plan(
    match: Match, decision: Decision, name: str, edges: Mapping[Node, EdgePlan], request: Request
) -> NodePlan:
    inputs = [edges[node] for node in input_edges(match)] if decision.is_int8 else []
    output = output_edge(match) if decision.is_int8 else None
    is_mac = match.op in MAC_OPS
    return NodePlan(
        name=name,
        op=match.op,
        target=str(match.node.target),
        verdict=decision.verdict,
        reason=decision.reason,
        members=tuple(node.name for node in match.members),
        inputs=tuple(edge.name for edge in inputs),
        output=edges[output].name if output is not None else None,
        weight=_weight_spec(match, name, request) if is_mac and decision.is_int8 else None,
        activation=match.activation_name,
        depthwise=match.is_depthwise,
        channel_multiplier=match.channel_multiplier,
        batch_norm=match.batch_norm is not None,
        reduce_range=is_mac and any(edge.spec.reduce_range for edge in inputs),
    )


def _weight_spec(match: Match, name: str, request: Request) -> Spec:
    assert match.op is not None
    asked = request.settings(name, match.op).granularity
    granularity = None if asked == "auto" else Granularity(asked)
    chosen = request.quantize.weights.observer
    observer = DEFAULT_WEIGHT_OBSERVER if chosen == "auto" else chosen
    axis = match.layout.channel_axis
    return ranges.weight_spec(
        request.backend, match.op, granularity=granularity, axis=axis, observer=observer, node=name
    )
