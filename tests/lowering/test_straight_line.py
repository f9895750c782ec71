"""The straight line gives what the lowered program gives, and is not taken where somebody records what is done."""

import pytest
import torch
from torch import nn

from qtool.lowering.op_calls import op_call
from qtool.lowering.straight_line import straight_line, takes_directly
from qtool.runtime.module import RuntimeModel
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, bn2d, conv


@pytest.mark.parametrize("engine", ["fbgemm", "onednn", "qnnpack", "x86"])
@torch.no_grad()
def test_it_gives_what_the_program_gives(engine):
    torch.manual_seed(0)
    residual = Lambda(lambda m, x: m.a(x) + x, a=conv(8, 8, padding=1))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    body = (conv(3, 8), bn2d(8), nn.ReLU6(), residual, conv(8, 8, groups=8))
    model = nn.Sequential(*body, *head).eval()
    x = torch.randn(4, 3, 12, 12)
    prepared = prepare(model, x, {"target": {"backend": engine}})
    calibrate(prepared, [x])
    runtime = RuntimeModel(convert(prepared))
    line = straight_line(runtime.body)
    for batch in (4, 1, 9):
        inputs = torch.randn(batch, 3, 12, 12)
        assert torch.equal(line(inputs), runtime.body(inputs))
        assert torch.equal(runtime(inputs), runtime.body(inputs))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_it_is_not_taken_by_a_trace():
    seen = []

    def traced(x):
        seen.append(takes_directly([x]))
        return x + 1

    torch.jit.trace(traced, torch.zeros(2), check_trace=False)
    assert seen
    assert not any(seen)
    assert takes_directly([torch.zeros(2), 3])


def test_an_op_is_called_with_all_its_constants():
    call = op_call(torch.ops.aten.clamp.default, 1, 3)
    assert call(torch.arange(5)).tolist() == [1, 1, 2, 3, 3]
    tensor = torch.tensor([1.0, 2.0])
    assert op_call(torch.ops.aten.add.Tensor, tensor, 1)(tensor).tolist() == [2.0, 4.0]
