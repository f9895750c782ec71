"""Kernels that must never be given a node, and numbers that must not hang on torch's global engine."""

import pytest
import torch
from torch import nn

from qtool.errors import MismatchError, UsageError
from qtool.runtime.module import RuntimeModel
from qtool.types import Verdict
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify
from tests.patterns import bn2d, conv

ENGINES = ["fbgemm", "x86", "onednn", "qnnpack"]
CRASHING = {"i": 20, "o": 20, "k": 3, "groups": 5, "padding": 1}
"""fbgemm's kernel for four channels per group writes behind its buffers when channels are left over."""


def prepared_on(model, x, backend, **quantize):
    prepared = prepare(model.eval(), x, {"target": {"backend": backend}, "quantize": quantize})
    calibrate(prepared, [x])
    return prepared


def test_a_convolution_that_crashes_fbgemm_stays_float():
    x = torch.randn(2, 20, 12, 12)
    prepared = prepared_on(conv(**CRASHING), x, "fbgemm")
    (node,) = prepared.plan.nodes
    assert node.verdict is Verdict.FLOAT
    assert "crashes the process" in node.reason


def test_asking_for_it_in_int8_is_an_error():
    with pytest.raises(UsageError, match="crashes the process"):
        prepared_on(conv(**CRASHING), torch.randn(2, 20, 12, 12), "fbgemm", overrides=[{"match": "*", "dtype": "int8"}])


def test_a_file_for_another_engine_is_refused_there():
    x = torch.randn(2, 20, 12, 12)
    converted = convert(prepared_on(conv(**CRASHING), x, "qnnpack", reduce_range="always"))
    assert converted.plan.int8_nodes()
    with pytest.raises(MismatchError, match=r"cannot run on fbgemm: .*crashes"):
        RuntimeModel(converted, "fbgemm")


UPSAMPLING = {"in_channels": 8, "out_channels": 8, "kernel_size": 2, "stride": 2}
"""The usual block of a U-Net, for which fbgemm's kernel gives other numbers."""


@pytest.mark.parametrize(
    ("engine", "granularity", "why"),
    [
        ("fbgemm", "channel", "case 11: its weight has a scale per channel"),
        ("fbgemm", "tensor", "case 10: .*gives other numbers"),
        ("onednn", "tensor", "case 09: .*wrong where input and output channels differ"),
        ("x86", "tensor", "case 09: .*wrong where input and output channels differ"),
    ],
)
def test_cases_09_10_11_a_transposed_convolution_made_for_qnnpack_is_refused_elsewhere(engine, granularity, why):
    x = torch.randn(2, 8, 6, 6)
    weights = {"granularity": granularity}
    converted = convert(
        prepared_on(nn.ConvTranspose2d(**UPSAMPLING), x, "qnnpack", reduce_range="always", weights=weights)
    )
    assert RuntimeModel(converted, "qnnpack")(x).shape == (2, 8, 12, 12)
    with pytest.raises(MismatchError, match=f"cannot run on {engine}: .*{why.partition(': ')[2]}"):
        RuntimeModel(converted, engine)


def test_three_dimensions_crash_fbgemm_too():
    layer, x = nn.Conv3d(18, 18, 3, padding=1, groups=9), torch.randn(2, 18, 5, 5, 5)
    (node,) = prepared_on(layer, x, "fbgemm").plan.nodes
    assert "crashes the process" in node.reason
    converted = convert(prepared_on(layer, x, "qnnpack", reduce_range="always"))
    with pytest.raises(MismatchError, match=r"cannot run on fbgemm: .*crashes"):
        RuntimeModel(converted, "fbgemm")


@pytest.fixture(params=ENGINES)
def global_engine(request):
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


@pytest.mark.parametrize("engine", ENGINES)
def test_the_global_engine_changes_no_number(engine, global_engine):
    """qnnpack's clamp, average pool and dilated max pool are wrong on channels_last where they are used."""
    torch.manual_seed(0)
    model = nn.Sequential(
        conv(4, 16, padding=1), bn2d(16), nn.ReLU6(), nn.MaxPool2d(3, 1, dilation=2), conv(16, 8),
        nn.Hardtanh(-0.2, 0.3), nn.AvgPool2d(3, 2, padding=1, count_include_pad=False), conv(8, 8),
    )  # fmt: skip
    x = torch.randn(2, 4, 16, 16).to(memory_format=torch.channels_last)
    converted = convert(prepared_on(model, x, engine, reduce_range="always"))
    prepared = prepared_on(model, x, engine, reduce_range="always")
    assert max(verify(prepared, converted, (x * 3,)).values()) <= 1
    runtime = RuntimeModel(converted)
    found = runtime(x)
    assert torch.backends.quantized.engine == global_engine
    torch.backends.quantized.engine = engine
    assert torch.equal(runtime(x), found)
