"""The check that a node is at most one step off must be able to fail."""

import pytest
import torch
from torch import nn

from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import step_differences
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify
from tests.patterns import conv

ENGINES = ["fbgemm", "x86", "onednn", "qnnpack"]


def converted_for(backend):
    torch.manual_seed(0)
    x = torch.randn(4, 4, 10, 10)
    prepared = prepare(
        nn.Sequential(conv(), nn.ReLU(), conv(8, 6), conv(6, 4)).eval(), x, {"target": {"backend": backend}}
    )
    calibrate(prepared, [x])
    return prepared, convert(prepared), x


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("part", ["weight", "bias", "scale"])
def test_a_changed_tensor_shows_at_its_node_and_nowhere_else(engine, part):
    prepared, converted, x = converted_for(engine)
    tensor = converted.exported.state_dict[f"2.int8.{part}"]
    tensor.copy_(tensor.flip(0) if part == "weight" else tensor * 3)
    steps = verify(prepared, converted, (x,))
    assert steps["2"] >= 2
    assert max(found for edge, found in steps.items() if edge != "2") <= 1


@pytest.mark.parametrize("engine", ["fbgemm", "x86", "onednn"])  # qnnpack keeps all 8 bits: nothing to clamp
def test_an_output_that_is_not_clamped_shows(engine):
    prepared, converted, x = converted_for(engine)
    lowered = RuntimeModel(converted).body
    for module in lowered.modules():
        if getattr(module, "clamp", None) is not None:
            module.clamp = None
        if isinstance(getattr(module, "bounds", None), list):
            module.bounds = [-1e9, 1e9]
    steps = step_differences(prepared, lowered, (x * 5,))
    assert max(steps[edge] for edge in ("0", "2")) >= 2


def test_the_reference_program_is_compared_too():
    prepared, converted, x = converted_for("fbgemm")
    converted.body.get_buffer("2.int8.bias").add_(1.0)
    steps = verify(prepared, converted, (x,), use_reference=True)
    assert steps["2"] >= 2
    assert steps["0"] == 0
