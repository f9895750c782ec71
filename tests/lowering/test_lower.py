"""What lowering refuses, and what it must not take for something else."""

import pytest
import torch
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.errors import MismatchError
from qtool.lowering.max_pool import MaxPool
from qtool.runtime.module import RuntimeModel
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare, prepare_program
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
@pytest.mark.parametrize(
    ("num_dims", "shape"),
    [
        (2, (2, 3, 40, 33)),
        (2, (0, 3, 40, 33)),
        (2, (3, 40, 33)),
        (1, (2, 3, 50)),
        (1, (3, 50)),
        (3, (2, 3, 7, 8, 9)),
        (3, (3, 7, 8, 9)),
    ],
)
def test_max_pool_of_codes_is_that_of_values(geometry, num_dims, shape):
    """Also over planes of more than 127 positions in channels_last, which aten refuses for bytes."""
    layer = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[num_dims](**geometry)
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    graph = torch.export.export(layer, (codes.float(),)).graph
    (node,) = [n for n in graph.nodes if n.op == "call_function"]
    pool, expected = MaxPool(node), layer(codes.float())
    assert torch.equal(pool(codes).float(), expected)
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    if codes.dim() == num_dims + 2 and codes.dim() in layouts:
        assert torch.equal(pool(codes.contiguous(memory_format=layouts[codes.dim()])).float(), expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(2, 4, 4, padding="same"), (1, 2, 16)),
        (nn.Conv2d(3, 4, 4, padding="same"), (1, 3, 7, 8)),
        (nn.Conv3d(2, 4, (2, 3, 4), padding="same", dilation=(1, 2, 1)), (1, 2, 4, 5, 6)),
    ],
)
@torch.no_grad()
def test_case_53_even_kernels_are_right_at_the_borders(layer, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    program = capture(layer.eval(), (x,), describe_inputs((x,)))
    for engine in ("fbgemm", "qnnpack", "x86", "onednn"):
        prepared = prepare_program(program, config_from_mapping({"target": {"backend": engine}}))
        calibrate(prepared, [x])
        found = RuntimeModel(convert(prepared))(x)
        scale = float(prepared.activations[prepared.plan.int8_nodes()[-1].output].fake_quantize.scale)
        assert (found - prepared(x)).abs().max() <= 1.001 * scale
        assert (found - layer(x)).abs().max() <= 4 * scale


class Dictionaries(nn.Module):
    """Takes and gives dictionaries."""

    def __init__(self):
        super().__init__()
        self.a, self.b = conv(), nn.Sequential(nn.Conv1d(4, 4, 3), nn.Sigmoid())

    def forward(self, inputs):
        return {"image": self.a(inputs["image"]), "parts": [self.b(inputs["signal"])]}


@pytest.mark.parametrize("engine", ["qnnpack", "onednn"])
def test_dictionaries_go_in_and_out(engine):
    torch.manual_seed(0)
    inputs = {"image": torch.randn(3, 4, 8, 8), "signal": torch.randn(3, 4, 20)}
    model = Dictionaries().eval()
    prepared = prepare(model, (inputs,), {"target": {"backend": engine}})
    calibrate(prepared, [(inputs,)])
    with torch.no_grad():
        found, expected = RuntimeModel(convert(prepared))(inputs), model(inputs)
    assert found.keys() == expected.keys()
    assert (found["image"] - expected["image"]).abs().max() < 0.1
    assert (found["parts"][0] - expected["parts"][0]).abs().max() < 0.05
