import dataclasses

import pytest
from rich.cells import cell_len

from qtool.backends.ranges import Consumer, activation_spec, weight_spec
from qtool.backends.registry import backend, backend_names
from qtool.report.plan_table import render_plan
from qtool.types import Isa, Op
from tests.readers.sample_files import sample_plan


def plan_for(name: str, isa: Isa):
    """Return the sample plan with the ranges that a backend asks for."""
    plan = sample_plan(backend=name, isa=isa)
    readers = {node.inputs[0]: node for node in plan.int8_nodes()}

    def spec(edge: str):
        node = readers.get(edge)
        consumers = []
        if node:
            kernel = {"depthwise": node.depthwise, "channel_multiplier": node.channel_multiplier}
            consumers = [Consumer(node=node.name, op=node.op, **kernel)]
        found = activation_spec(backend(name), isa, consumers, observer="minmax")
        return dataclasses.replace(found, why="", source="")

    def weight(op: Op):
        found = weight_spec(backend(name), op, granularity=None, axis=0, observer="minmax")
        return dataclasses.replace(found, why="", source="")

    edges = tuple(dataclasses.replace(edge, spec=spec(edge.name)) for edge in plan.edges)
    nodes = tuple(
        dataclasses.replace(node, weight=weight(node.op), reduce_range=spec(node.inputs[0]).reduce_range)
        if node.weight
        else node
        for node in plan.nodes
    )
    return dataclasses.replace(plan, edges=edges, nodes=nodes)


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("isa", [Isa.ANY, Isa.VNNI])
def test_case_08_the_table_shows_the_range_each_backend_gets(name, isa, golden):
    golden(f"plan_{name}_{isa.value}.txt", render_plan(plan_for(name, isa)))


def test_the_plan_on_a_narrow_terminal(golden):
    golden("plan_narrow.txt", render_plan(sample_plan(), width=60))


@pytest.mark.parametrize("width", [1, 50, 80, 120, 200])
def test_no_line_is_wider_than_asked(width):
    text = render_plan(sample_plan(), width=width)
    assert max(cell_len(line) for line in text.split("\n")) <= max(width, 20)


def test_the_last_lines_count_nodes_and_islands():
    assert render_plan(sample_plan()).endswith(
        "3 of 4 nodes int8 for fbgemm, isa any; float islands: 1\n  1 x silu has no int8 kernel\n"
    )


def test_an_empty_plan_has_no_table():
    plan = dataclasses.replace(sample_plan(), nodes=(), edges=())
    assert "0 of 0 nodes int8" in render_plan(plan)


def test_names_are_printed_as_they_are_but_harmless():
    plan = sample_plan()
    stem = dataclasses.replace(plan.nodes[0], name="conv[0]:smile:\x1b[2J", reason="[red]")
    text = render_plan(dataclasses.replace(plan, nodes=(stem,)))
    assert r"conv[0]:smile:\x1b[2J" in text
    assert "[red]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(("width", "is_whole"), [(1000, True), (196, True), (185, False)])
def test_a_long_name_is_cut_only_where_it_has_to_be(width, is_whole):
    plan = sample_plan()
    name = "blocks.12.depthwise_conv.static_padding.of.a.deep.model"
    stem = dataclasses.replace(plan.nodes[0], name=name)
    assert (name in render_plan(dataclasses.replace(plan, nodes=(stem,)), width=width)) is is_whole
