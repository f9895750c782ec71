"""The quantized values of a model: which there are, which share a scale, and in which range each lies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qtool.backends import ranges
from qtool.backends.fixed_range import fixed_parameters
from qtool.capture.view_inverse import SPLITS
from qtool.errors import UsageError
from qtool.observers.registry import DEFAULT_ACTIVATION_OBSERVERS
from qtool.passes.ops import SHARING
from qtool.plan import EdgePlan
from qtool.types import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Node

    from qtool.passes.match import Match
    from qtool.passes.verdicts import Request
    from qtool.types import FixedParameters, Spec


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """One quantized value: its name, the pattern it comes from, and the int8 patterns that read it."""

    node: Node
    name: str
    producer: Match | None
    readers: tuple[Match, ...]


def quantized_edges(int8: tuple[Match, ...], names: Mapping[Node, str], request: Request) -> dict[Node, EdgePlan]:
    """Return the plan of every quantized value, by graph node, in execution order.

    Args:
        int8: the patterns that run in int8.
        names: name of every input and op of the graph.
        request: what the plan is asked for.
    """
    edges = _find_edges(int8, names)
    plans = {}
    for members in _groups(int8, edges):
        spec = _spec(members, names, request)
        for edge in members:
            plans[edge.node] = EdgePlan(name=edge.name, value=edge.node.name, spec=spec, group=members[0].name)
    return {node: plans[node] for node in edges}


def input_edges(match: Match) -> tuple[Node, ...]:
    """Return the values an int8 pattern reads; a list of slices stands for what was sliced."""
    return tuple(_whole(node) for node in match.inputs)


def output_edge(match: Match) -> Node | None:
    """Return the value an int8 pattern gives; a list of slices is none."""
    return None if match.node.target in SPLITS else match.result


def _whole(node: Node) -> Node:
    return node.args[0] if node.target in SPLITS else node  # type: ignore[return-value]


def _find_edges(int8: tuple[Match, ...], names: Mapping[Node, str]) -> dict[Node, _Edge]:
    readers: defaultdict[Node, list[Match]] = defaultdict(list)
    producers: dict[Node, Match] = {}
    for match in int8:
        for node in input_edges(match):
            readers[node].append(match)
        output = output_edge(match)
        if output is not None:
            producers[output] = match
    found = {}
    for node in _graph_order(readers.keys() | producers.keys()):
        producer = producers.get(node)
        name = names[producer.node if producer else node]
        found[node] = _Edge(node=node, name=name, producer=producer, readers=tuple(readers[node]))
    return found


def _graph_order(nodes: set[Node]) -> list[Node]:
    first = next(iter(nodes), None)
    return [node for node in first.graph.nodes if node in nodes] if first else []


def _groups(int8: tuple[Match, ...], edges: dict[Node, _Edge]) -> list[list[_Edge]]:
    """Join the edges that must have one scale, by union-find."""
    parents = {node: node for node in edges}

    def root(node: Node) -> Node:
        while parents[node] is not node:
            node = parents[node]
        return node

    for match in int8:
        if match.op in SHARING:
            output = output_edge(match)
            shared = [*input_edges(match), *([output] if output is not None else [])]
            for node in shared[1:]:
                parents[root(node)] = root(shared[0])
    groups: defaultdict[Node, list[_Edge]] = defaultdict(list)
    for node, edge in edges.items():
        groups[root(node)].append(edge)
    return list(groups.values())


def _spec(members: list[_Edge], names: Mapping[Node, str], request: Request) -> Spec:
    consumers = []
    for match in (reader for edge in members for reader in edge.readers):
        assert match.op is not None
        name = names[match.node]
        consumers.append(
            ranges.Consumer(
                node=name,
                op=match.op,
                depthwise=match.is_depthwise,
                channel_multiplier=match.channel_multiplier,
                reduce=request.settings(name, match.op).reduce_range,
                proved_safe=name in request.proved_safe,
            )
        )
    spec = ranges.activation_spec(request.backend, request.isa, consumers, observer=_observer(members, request))
    return _with_fixed_parameters(spec, members)


def _with_fixed_parameters(spec: Spec, members: list[_Edge]) -> Spec:
    """Return the spec with the parameters that follow from the ops, if all values of the group come from such ops."""
    sources = [edge for edge in members if edge.producer is None or edge.producer.op not in SHARING]
    fixed = {edge: _fixed(edge, spec) for edge in sources}
    if not any(fixed.values()):
        return spec
    known = set(fixed.values())
    first = next(edge for edge in sources if fixed[edge])
    assert first.producer is not None
    assert first.producer.op is not None
    if len(known) == 1 and not any(_clamps(edge) for edge in members):
        return replace(spec, fixed=known.pop(), why=f"{spec.why}; the range of {first.producer.op} is known")
    others = next(edge.name for edge in members if edge is not first)
    return replace(spec, why=f"{spec.why}; {first.name!r} shares its scale with {others!r}, so it is observed")


def _fixed(edge: _Edge, spec: Spec) -> FixedParameters | None:
    if edge.producer is None or edge.producer.op is None:
        return None
    return fixed_parameters(edge.producer.op, spec.qmin, spec.qmax)


def _clamps(edge: _Edge) -> bool:
    """Whether the value comes from a clamp, whose bounds may lie outside of the range before it."""
    return edge.producer is not None and (edge.producer.op is Op.ACTIVATION or edge.producer.activation is not None)


def _observer(members: list[_Edge], request: Request) -> str:
    """Return the observer of a group: their statistics are merged, so there is one."""
    usual = request.quantize.activations.observer
    asked: dict[str, str] = {}
    for edge in members:
        observer = request.settings(edge.name, edge.producer.op if edge.producer else None).observer
        if observer != usual:
            asked.setdefault(observer, edge.name)
    if len(asked) > 1:
        (first, one), (second, other) = list(asked.items())[:2]
        msg = f"{one!r} asks for observer {first!r} and {other!r} for {second!r}, but they share one scale; give one"
        raise UsageError(msg)
    chosen = next(iter(asked), usual)
    return DEFAULT_ACTIVATION_OBSERVERS[request.quantize.mode] if chosen == "auto" else chosen
