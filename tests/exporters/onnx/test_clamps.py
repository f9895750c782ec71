"""A clamp goes only where the quantize behind it clamps at the same codes."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qtool.exporters.onnx.clamps import remove_repeated_clamps
from tests.exporters.onnx.exported import ops_of, proto_of, run, to_onnx
from tests.exporters.onnx.test_model import converted_model

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[N] x) => (DTYPE[N] y)
<float s = {SCALE}, DTYPE z = {ZERO}, DTYPE low = {QMIN}, DTYPE high = {QMAX}, float a = {LOW}, float b = {HIGH}>
{
    c = CLAMP
    q = QuantizeLinear(c, s, z)
    y = Clip(q, low, high)
}
"""


def model(clamp, *, scale, zero, qmin=0, qmax=255, low=0.0, high=6.0, dtype="uint8"):
    values = {
        "SCALE": scale, "ZERO": zero, "QMIN": qmin, "QMAX": qmax, "LOW": low, "HIGH": high, "DTYPE": dtype,
    }  # fmt: skip
    text = TEXT.replace("CLAMP", clamp)
    for word, value in values.items():
        text = text.replace(word, str(value))
    return ir.from_onnx_text(text)


def is_kept(made):
    remove_repeated_clamps(made.graph)
    return [node.op_type for node in made.graph] != ["QuantizeLinear", "Clip"]


RELU, RELU6 = "Relu(x)", "Clip(x, a, b)"


@pytest.mark.parametrize(
    ("clamp", "grid", "kept"),
    [
        (RELU, {"scale": 0.1, "zero": 0}, False),
        (RELU, {"scale": 0.1, "zero": 1}, True),
        (RELU, {"scale": 0.1, "zero": 0, "qmin": -128, "qmax": 127, "dtype": "int8"}, True),
        (RELU, {"scale": 0.1, "zero": -128, "qmin": -128, "qmax": 127, "dtype": "int8"}, False),
        (RELU, {"scale": 0.1, "zero": -64, "qmin": -64, "qmax": 63, "dtype": "int8"}, False),
        (RELU6, {"scale": 0.02, "zero": 0}, False),  # 255 * 0.02 is 5.1: the quantize clamps first
        (RELU6, {"scale": 0.03, "zero": 0}, True),  # 255 * 0.03 is 7.65
        (RELU6, {"scale": 0.03, "zero": 0, "qmax": 127}, False),  # 127 * 0.03 is 3.81
        (RELU6, {"scale": 0.02, "zero": 0, "low": -1.0}, False),
        (RELU6, {"scale": 0.02, "zero": 10, "low": -0.1}, True),
    ],
)
def test_case_64_a_clamp_stays_unless_the_codes_end_where_it_does(clamp, grid, kept):
    assert is_kept(model(clamp, **grid)) is kept


@given(
    scale=st.floats(2**-8, 0.5, width=32),
    zero=st.integers(0, 127),
    qmax=st.sampled_from([127, 255]),
    low=st.floats(-4, 0, width=32),
    high=st.floats(0, 8, width=32),
)
def test_case_64_codes_are_the_same_without_the_clamps_that_go(scale, zero, qmax, low, high):
    made = model(RELU6, scale=scale, zero=zero, qmax=qmax, low=low, high=high)
    if is_kept(made):
        return
    x = np.linspace(-20, 20, 4001, dtype=np.float32)
    clamped = np.clip(x, np.float32(low), np.float32(high))
    without, with_clamp = (np.clip(np.rint(v / np.float32(scale)) + zero, 0, qmax) for v in (x, clamped))
    np.testing.assert_array_equal(without, with_clamp)


class Ends(nn.Module):
    """A convolution with large negative values, and two activations of it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.other = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x)), F.hardtanh(self.other(x), 0.0, HIGH)


HIGH = 0.4
"""Below the largest value that is observed."""


@pytest.mark.parametrize("backend", ["onnxruntime", "qnnpack", "xnnpack"], ids=["reduced", "uint8", "int8"])
def test_case_64_nothing_below_zero_comes_out(backend):
    x = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    converted = converted_model(Ends(), x, backend)
    relu, hardtanh = run(to_onnx(converted).data, (x * 3).numpy())
    assert relu.min() == hardtanh.min() == 0
    step = converted.stamp.nodes[-1].output.scale_max
    assert hardtanh.max() <= HIGH + step / 2


def test_case_64_a_relu_that_is_read_elsewhere_stays():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x):
            return torch.sigmoid(torch.relu(x)) + torch.relu(self.conv(x)).mean()

    converted = converted_model(Both(), torch.randn(4, 3, 8, 8))
    assert ops_of(proto_of(to_onnx(converted)), "Relu")
