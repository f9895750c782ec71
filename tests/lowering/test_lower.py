"""What lowering refuses, and what it must not take for something else."""

import pytest
import torch
from torch import nn

from qtool.errors import MismatchError
from qtool.lowering.max_pool import MaxPool
from qtool.runtime.module import RuntimeModel
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import conv


def converted_for(backend):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, 9)
    prepared = prepare(nn.Sequential(conv(), nn.ReLU(), conv(8, 4)).eval(), x, {"target": {"backend": backend}})
    calibrate(prepared, [x])
    return convert(prepared)


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "x86", "onednn"])
def test_int8_activations_are_refused_before_a_kernel_does(engine):
    converted = converted_for("xnnpack")
    with pytest.raises(MismatchError, match=f"activations are int8, and {engine} takes uint8"):
        RuntimeModel(converted, engine)


def test_uint8_models_for_another_runtime_run_on_torchs_engines():
    converted = converted_for("onnxruntime")
    x = torch.randn(2, 4, 9, 9)
    assert torch.equal(RuntimeModel(converted, "fbgemm")(x), converted(x))


GEOMETRIES = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("shape", [(2, 3, 40, 33), (0, 3, 40, 33), (3, 40, 33), (2, 3, 50), (3, 50)])
def test_max_pool_of_codes_is_that_of_values(geometry, shape):
    """Also over planes of more than 127 positions in channels_last, which aten refuses for bytes."""
    is_1d = shape[-1] == 50
    layer = nn.MaxPool1d(**geometry) if is_1d else nn.MaxPool2d(**geometry)
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    graph = torch.export.export(layer, (codes.float(),)).graph
    (node,) = [n for n in graph.nodes if n.op == "call_function"]
    pool, expected = MaxPool(node), layer(codes.float())
    assert torch.equal(pool(codes).float(), expected)
    if codes.dim() == 4:
        assert torch.equal(pool(codes.contiguous(memory_format=torch.channels_last)).float(), expected)
