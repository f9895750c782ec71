"""The test every engine must pass: each pattern converted, run on the engine, at most one step off at every node."""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest
import torch

from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import edge_codes, step_differences
from qtool.types import Isa, Verdict
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program
from tests.patterns import PATTERNS, make_pattern

BEYOND = 3.0
"""Inputs are this much larger than those calibrated on, so that the ends of every range are met and clamped."""

FLOOD = 10.0
"""Two samples have this value everywhere, up and down: averages reach their ends by that alone."""


@functools.cache
def captured_pattern(name: str):
    """Captured once for all engines: it is most of the work, and independent of them."""
    model, x = make_pattern(name)
    dynamic = PATTERNS[name].has_batch
    return capture(model, (x,), describe_inputs((x,), dynamic_batch=dynamic)), x


@functools.cache
def prepared_pattern(name: str, backend: str, isa: Isa):
    program, x = captured_pattern(name)
    prepared = prepare_program(program, config_from_mapping({"target": {"backend": backend, "isa": isa.value}}))
    calibrate(prepared, [x])
    return prepared, x


def both_inputs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The input calibrated on, which reaches every end of every range, and one that goes far beyond."""
    beyond = torch.randn(x.shape, generator=torch.Generator().manual_seed(7)) * BEYOND
    beyond[0], beyond[1] = FLOOD, -FLOOD
    return x, beyond


class EngineTemplate:
    backend: ClassVar[str]
    isa: ClassVar[Isa] = Isa.ANY

    @pytest.mark.parametrize("name", PATTERNS)
    def test_at_most_one_step_per_node(self, name):
        prepared, x = prepared_pattern(name, self.backend, self.isa)
        lowered = RuntimeModel(convert(prepared)).body
        for inputs in both_inputs(x):
            differences = step_differences(prepared, lowered, (inputs,))
            assert differences.keys() == {edge.name for edge in prepared.plan.edges}
            assert max(differences.values()) <= 1

    @pytest.mark.parametrize("name", PATTERNS)
    def test_the_inputs_cover_every_range(self, name):
        """What the test above rests on: every scale meets both ends of its range, and 5 % of all codes are ends.

        To within a step: where an edge before it clamps, or an op rounds, the last code may be out of reach.
        """
        prepared, x = prepared_pattern(name, self.backend, self.isa)
        codes = [edge_codes(prepared, (inputs,)) for inputs in both_inputs(x)]
        groups = {edge.group: edge.spec for edge in prepared.plan.edges}
        members = {group: [edge.name for edge in prepared.plan.edges if edge.group == group] for group in groups}
        found = {
            group: torch.cat([run[name].flatten() for run in codes for name in names])
            for group, names in members.items()
        }
        for group, spec in groups.items():
            assert int(found[group].min()) <= spec.qmin + 1
            assert int(found[group].max()) >= spec.qmax - 1
        ends = [(values == groups[group].qmin) | (values == groups[group].qmax) for group, values in found.items()]
        assert sum(int(e.sum()) for e in ends) >= 0.05 * sum(e.numel() for e in ends)

    @pytest.mark.parametrize("name", PATTERNS)
    def test_only_the_stated_nodes_stay_float(self, name):
        prepared, _ = prepared_pattern(name, self.backend, self.isa)
        floats = [node.name for node in prepared.plan.nodes if node.verdict is Verdict.FLOAT]
        assert len(floats) == PATTERNS[name].islands_on(self.backend), floats
