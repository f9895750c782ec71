"""The fastest engine of each node, found by timing the whole program where it will run.

    1  lower the program once for each engine: every node on it that is right there, the others where they are safe
    2  run these programs in turn, node by node; a node's time is the smallest of all rounds, and holds what stands
       before it since the last quantized edge: casts and changes of layout count
    3  take for each node its best engine, and time that mixture against each single engine, as it will be run
    4  keep the fastest of them

Timing takes `SECONDS` at most, unless a program is so slow that the least number of rounds takes longer. Each program
holds packed weights of its own until the choice is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from qtool.backends.engines import OnMismatch
from qtool.capture.program import plain_module
from qtool.lowering.lower import lower
from qtool.lowering.straight_line import straight_line
from qtool.runtime.engine_choice import EXACT_ENGINE, Here, Placed, Placement, place_nodes, safe_engines
from qtool.runtime.verify import edge_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

    from qtool.lowering.mac_nodes import MacNode
    from qtool.stamp.schema import Stamp

TIMED = ("fbgemm", "onednn", "x86", "qnnpack")
"""Engines that are timed. Both onednn and x86 run oneDNN: on packed weights, which costs less to call, and on plain
tensors, which can be faster for large batches."""

SECONDS = 4.0
"""What timing may take in all: half for the nodes, half for whole programs."""

LEAST_ROUNDS = 3
MOST_ROUNDS = 50

WORTH_IT = 0.95
"""A node leaves the best single engine only for less than this share of its time: smaller gains are noise."""

HOPELESS = 1.3
"""An engine whose nodes take this much more than the best one's is not timed as a whole."""

WORTH_MIXING = 0.98
"""A mixture is taken for less than this share of the best single engine's time: one engine is simpler."""

MIXTURE = "mixture"

Engines = Mapping[str, str]
"""Torch engine by the name of a node in the graph."""


def place_fastest(
    exported: ExportedProgram,
    stamp: Stamp,
    nodes: Sequence[MacNode],
    example: tuple[Any, ...],
    *,
    known: Mapping[str, str] | None = None,
    on_mismatch: str = OnMismatch.ERROR,
) -> Placement:
    """Return where each node runs fastest on `example`, of the engines that are right for it.

    Args:
        exported: the reference program.
        stamp: what it was made for.
        nodes: its convolutions and linear layers.
        example: positional arguments.
        known: what was found before, engine by label; taken if each is right for its node, else timed again.
        on_mismatch: what to do with nodes that no engine here is right for.

    Raises:
        MissingEngineError: this torch has no engine.
        MismatchError: no engine here is right for a node, and `on_mismatch` does not say to go on.
    """
    here = Here()
    safe = {node.name: safe_engines(node, here) for node in nodes}
    rest = place_nodes(stamp, [n for n in nodes if not safe[n.name]], on_mismatch=on_mismatch, here=here)
    fixed = {name: placed.engine for name, placed in rest.nodes.items()}
    choices = {name: engines for name, engines in safe.items() if engines}
    chosen: Engines = {n.name: known.get(n.label, "") for n in nodes if n.name in choices} if known else {}
    warning = rest.warning
    if not all(chosen.get(name) in engines for name, engines in choices.items()):
        if known:
            again = "the engines that were kept are not right for every node here; they are timed again"
            warning = f"{warning}; {again}" if warning else again
        chosen = _fastest(exported, _single_engines(choices, fixed), _edges(stamp, nodes), example)
    found = {name: Placed(chosen[name], "the fastest here") for name in choices}
    return Placement({node.name: found.get(node.name) or rest.nodes[node.name] for node in nodes}, warning)


def _single_engines(choices: Mapping[str, tuple[str, ...]], fixed: Engines) -> dict[str, Engines]:
    """Return for each engine what a model asked to run on it would do: nodes it is wrong for go elsewhere."""
    singles: dict[str, Engines] = {}
    for engine in TIMED:
        chosen = {
            name: engine if engine in engines else EXACT_ENGINE if EXACT_ENGINE in engines else engines[0]
            for name, engines in choices.items()
        }
        if {**chosen, **fixed} not in singles.values():
            singles[engine] = {**chosen, **fixed}
    return singles


def _fastest(
    exported: ExportedProgram, singles: Mapping[str, Engines], edges: Mapping[str, str], example: tuple[Any, ...]
) -> Engines:
    """Return the fastest of each engine alone and of the mixture of the fastest of each node."""
    if len(singles) == 1:
        return next(iter(singles.values()))
    programs = {name: _lowered(exported, engines) for name, engines in singles.items()}
    times = _time_nodes(programs, example)
    totals = {name: sum(smallest.values()) for name, smallest in times.items()}
    best = min(totals, key=lambda name: totals[name])
    mixture = {name: _best_for(edge, name, best, singles, times) for name, edge in edges.items()}
    for name in singles:
        if totals[name] > HOPELESS * totals[best]:
            del programs[name]  # its packed weights too
    if mixture not in singles.values():
        programs[MIXTURE] = _lowered(exported, mixture)
    seconds = _time_programs(programs, example)
    best = min(seconds.keys() - {MIXTURE}, key=lambda name: seconds[name])
    return mixture if seconds.get(MIXTURE, math.inf) < WORTH_MIXING * seconds[best] else singles[best]


def _edges(stamp: Stamp, nodes: Sequence[MacNode]) -> dict[str, str]:
    """Return the quantized edge that each node writes."""
    written = {node.name: node.output.edge for node in stamp.nodes if node.output is not None}
    return {node.name: written.get(node.label, node.label) for node in nodes}


def _best_for(
    edge: str, name: str, best: str, singles: Mapping[str, Engines], found: Mapping[str, Mapping[str, float]]
) -> str:
    """Return a node's engine in the mixture: that of the best program, or a clearly faster one."""
    times = {program: smallest.get(edge, math.inf) for program, smallest in found.items()}
    fastest = min(times, key=lambda program: times[program])
    return singles[fastest if times[fastest] < WORTH_IT * times[best] else best][name]


def _lowered(exported: ExportedProgram, engines: Engines) -> GraphModule:
    module = plain_module(exported)
    return lower(module, engines).eval()


# --- timing


def _time_nodes(programs: Mapping[str, GraphModule], example: tuple[Any, ...]) -> dict[str, dict[str, float]]:
    """Return the smallest time in seconds that each program took for each quantized edge."""
    flat = pytree.tree_leaves(example)
    runs = {name: _NodeTimes(program) for name, program in programs.items()}
    _in_turn([partial(run.run, *flat, enable_io_processing=False) for run in runs.values()])
    return {name: run.smallest for name, run in runs.items()}


def _time_programs(programs: Mapping[str, GraphModule], example: tuple[Any, ...]) -> dict[str, float]:
    """Return the smallest time in seconds that each program took as a whole."""
    smallest = dict.fromkeys(programs, math.inf)
    lines = {name: straight_line(program) for name, program in programs.items()}

    def timed(name: str) -> None:
        start = perf_counter()
        lines[name](*example)
        smallest[name] = min(smallest[name], perf_counter() - start)

    _in_turn([partial(timed, name) for name in programs])
    return smallest


@torch.no_grad()
def _in_turn(works: Sequence[Callable[[], object]]) -> None:
    """Do all works in turn, for rounds that take half of `SECONDS` together."""
    end = perf_counter() + SECONDS / 2
    with torch.autocast("cpu", enabled=False):
        for done in range(MOST_ROUNDS):
            if done >= LEAST_ROUNDS and perf_counter() > end:
                return
            for work in works:
                work()


class _NodeTimes(fx.Interpreter):
    """Runs a lowered program and keeps the smallest time of each stretch that ends with a quantized edge."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.smallest: dict[str, float] = {}
        self._since = 0.0

    def run(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        self._since = perf_counter()
        return super().run(*args, **kwargs)

    def run_node(self, n: Node) -> Any:  # noqa: ANN401
        result = super().run_node(n)
        edge = edge_of(n)
        if edge is not None:
            now = perf_counter()
            self.smallest[edge] = min(now - self._since, self.smallest.get(edge, math.inf))
            self._since = now
        return result
