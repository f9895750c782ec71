"""The test every engine must pass: each pattern converted, run on the engine, at most one step off at every node."""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest
import torch

from qtool.runtime.verify import edge_codes
from qtool.types import Isa, Verdict
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify
from tests.patterns import PATTERNS, make_pattern

BEYOND = 3.0
"""Inputs are this much larger than those calibrated on, so that the ends of every range are met and clamped."""

FLOOD = 10.0
"""Two samples have this value everywhere, up and down: averages reach their ends by that alone."""


@functools.cache
def prepared_pattern(name: str, backend: str, isa: Isa):
    model, x = make_pattern(name)
    prepared = prepare(model, x, {"target": {"backend": backend, "isa": isa.value}})
    calibrate(prepared, [x])
    return prepared, x


def saturating(shape: torch.Size) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(7)) * BEYOND
    x[0], x[1] = FLOOD, -FLOOD
    return x


class EngineTemplate:
    backend: ClassVar[str]
    isa: ClassVar[Isa] = Isa.ANY

    @pytest.mark.parametrize("name", PATTERNS)
    def test_at_most_one_step_per_node(self, name):
        prepared, x = prepared_pattern(name, self.backend, self.isa)
        inputs = (saturating(x.shape),)
        differences = verify(prepared, convert(prepared), inputs)
        assert differences.keys() == {edge.name for edge in prepared.plan.edges}
        assert max(differences.values()) <= 1

    @pytest.mark.parametrize("name", PATTERNS)
    def test_the_inputs_cover_every_range(self, name):
        """What the test above rests on: every scale meets both ends of its range, and 5 % of all codes are ends."""
        prepared, x = prepared_pattern(name, self.backend, self.isa)
        codes = edge_codes(prepared, (saturating(x.shape),))
        groups = {edge.group: edge.spec for edge in prepared.plan.edges}
        found = {
            group: torch.cat([codes[edge.name].flatten() for edge in prepared.plan.edges if edge.group == group])
            for group in groups
        }
        met = {group: (int(values.min()), int(values.max())) for group, values in found.items()}
        assert met == {group: (spec.qmin, spec.qmax) for group, spec in groups.items()}
        ends = [(values == groups[group].qmin) | (values == groups[group].qmax) for group, values in found.items()]
        assert sum(int(e.sum()) for e in ends) >= 0.05 * sum(e.numel() for e in ends)

    @pytest.mark.parametrize("name", PATTERNS)
    def test_only_the_stated_nodes_stay_float(self, name):
        prepared, _ = prepared_pattern(name, self.backend, self.isa)
        floats = [node.name for node in prepared.plan.nodes if node.verdict is Verdict.FLOAT]
        assert len(floats) == PATTERNS[name].islands
