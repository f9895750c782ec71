"""Ops without an int8 kernel run in float between codes: on every engine, counted, and never an error at run time."""

import pytest
import torch
from torch import nn

from qtool.runtime.module import RuntimeModel
from qtool.types import Verdict
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify
from tests.patterns import conv

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
BETWEEN = {"silu": nn.SiLU(), "gelu": nn.GELU(), "layer_norm": nn.LayerNorm([8, 6, 6]), "prelu": nn.PReLU(8)}
X = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(0))


def converted_between(layer, engine, **quantize):
    torch.manual_seed(0)
    model = nn.Sequential(conv(), layer, conv(8, 4)).eval()
    prepared = prepare(model, X, {"target": {"backend": engine}, "quantize": quantize})
    calibrate(prepared, [X])
    return prepared, convert(prepared)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", BETWEEN)
def test_case_50_an_op_without_a_kernel_is_a_float_island(name, engine):
    prepared, converted = converted_between(BETWEEN[name], engine)
    verdicts = {node.name: node.verdict for node in converted.plan.nodes}
    assert verdicts == {"0": Verdict.INT8, "1": Verdict.FLOAT, "2": Verdict.INT8}
    assert sum(converted.plan.float_islands().values()) == 1
    assert max(verify(prepared, converted).values()) <= 1
    assert RuntimeModel(converted)(X).shape == (4, 4, 4, 4)


@pytest.mark.parametrize("engine", ENGINES)
def test_case_50_a_layer_whose_input_stays_float_is_quantized_on_its_way_in(engine):
    """The first convolution is skipped, so what the second reads comes from float."""
    prepared, converted = converted_between(nn.ReLU(), engine, skip=["0"])
    assert {node.name: node.verdict for node in converted.plan.nodes}["2"] is Verdict.INT8
    assert max(verify(prepared, converted).values()) <= 1
    assert torch.isfinite(RuntimeModel(converted)(X)).all()
