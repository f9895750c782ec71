"""Biases as int32 with the scale of input times weight."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

from qtool.errors import ModelError
from qtool.exporters.onnx.biases import quantize_biases
from tests.exporters.onnx.exported import (
    attributes_of,
    exported_pattern,
    exported_together,
    initializers_of,
    ops_of,
    proto_of,
)
from tests.exporters.together import QUICK, converted_pattern

GEMM = """
<ir_version: 10, opset_import: ["" : 20]>
g (uint8[1,2] x) => (float[1,1] y)
<float s = {0.001}, uint8 z = {0}, int8[1,2] w = {1,2}, float ws = {0.0001}, int8 wz = {0}, float[1] b = {BIAS}>
{
    xf = DequantizeLinear(x, s, z)
    wf = DequantizeLinear(w, ws, wz)
    y = Gemm<transB=1>(xf, wf, b)
}
"""

TRANSPOSED = """
<ir_version: 10, opset_import: ["" : 20]>
g (uint8[1,2,3,3] x) => (float[1,4,3,3] y)
<float s = {0.5}, uint8 z = {0}, int8[2,2,1,1] w = {1,2,3,4}, float[2] ws = {0.5, 0.25}, int8[2] wz = {0, 0},
 float[4] b = {1.0, 1.0, -2.0, -2.0}>
{
    xf = DequantizeLinear(x, s, z)
    wf = DequantizeLinear<axis=1>(w, ws, wz)
    y = ConvTranspose<group=2>(xf, wf, b)
}
"""


def quantized_bias(text):
    graph = ir.from_onnx_text(text).graph
    quantize_biases(graph)
    (op,) = [node for node in graph if len(node.inputs) == 3 and node.op_type != "DequantizeLinear"]
    codes, scale, _ = [value.const_value.numpy() for value in op.inputs[2].producer().inputs]
    return codes, scale


def test_codes_are_rounded_half_to_even():
    codes, scale = quantized_bias(GEMM.replace("BIAS", "0.25").replace("0.001", "0.5").replace("0.0001", "0.2"))
    assert scale == np.float32(0.5) * np.float32(0.2)
    assert codes.dtype == np.int32
    assert codes.tolist() == [2]  # 0.25 / 0.1 is 2.5


def test_a_grouped_transposed_convolution_repeats_its_scales_in_each_group():
    codes, scale = quantized_bias(TRANSPOSED)
    assert scale.tolist() == [0.25, 0.125, 0.25, 0.125]
    assert codes.tolist() == [4, 8, -8, -16]


def test_a_bias_beyond_int32_is_an_error_that_names_the_node():
    with pytest.raises(ModelError, match=r"bias of node 'y' does not fit int32: it has 1e\+10 steps"):
        quantized_bias(GEMM.replace("BIAS", "1000.0"))


@pytest.mark.parametrize("name", ["conv2d_bn", "conv2d_bn_relu"], ids=["born of batch norm", "of the convolution"])
def test_case_45_a_bias_is_int32_wherever_it_comes_from(name):
    converted, _ = converted_pattern(name)
    proto = proto_of(exported_pattern(name))
    (conv,) = ops_of(proto, "Conv")
    assert len(conv.input) == 3
    producers = {node.output[0]: node for node in proto.graph.node}
    x, weight, bias = (producers[value] for value in conv.input)
    arrays = initializers_of(proto)
    scale = arrays[x.input[1]] * arrays[weight.input[1]]
    np.testing.assert_array_equal(arrays[bias.input[1]], scale)
    codes = arrays[bias.input[0]]
    expected = converted.exported.state_dict["0.int8.bias"].to(torch.float64).numpy() / scale.astype(np.float64)
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(codes, np.rint(expected))
    assert attributes_of(bias)["axis"] == 0


def test_a_bias_of_two_calls_becomes_two_and_the_weight_stays_one():
    arrays = initializers_of(proto_of(exported_together(QUICK, "onnxruntime")))
    mine = {name: array for name, array in arrays.items() if name.startswith("models.called_twice.")}
    assert [name for name, array in mine.items() if array.dtype == np.int32 and array.any()] == [
        "models.called_twice.a.bias",
        "models.called_twice.a#2.bias",
    ]
    assert [array.shape for array in mine.values() if array.dtype == np.int8 and array.ndim == 4] == [(4, 4, 3, 3)]
    assert not [name for name in arrays if name.endswith("int8.bias")]  # the float ones are gone
