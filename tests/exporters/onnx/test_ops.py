"""What a quantize, a dequantize and a linear become, and that they compute the same."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qtool.errors import UsageError
from qtool.exporters.formats import check_opset, known_format
from qtool.exporters.onnx.biases import quantize_biases
from qtool.exporters.onnx.container import EXTERNAL_ABOVE_BYTES, to_files
from qtool.exporters.onnx.translate import translate
from qtool.exporters.onnx.verify import OPTIMIZATIONS, edge_codes
from qtool.passes import qdq_ops
from tests.exporters.onnx.exported import (
    attributes_of,
    exported_together,
    initializers_of,
    ops_of,
    proto_of,
    run,
)
from tests.exporters.together import QUICK, converted_together


@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
def test_case_65_a_reduced_range_ends_at_127_beyond_what_was_observed(optimization):
    converted, (inputs, _) = converted_together(QUICK, "onnxruntime")
    twice = ({name: x * 2 for name, x in inputs.items()},)
    codes = edge_codes(exported_together(QUICK, "onnxruntime"), None, twice, optimization)
    reduced = [edge for edge in converted.plan.edges if edge.spec.qmax == 127]
    assert all(int(codes[edge.name].max()) <= 127 for edge in reduced)
    first = [edge.name for edge in reduced if edge.name.startswith("inputs_")]
    assert len(first) == len(QUICK) - 1  # all but the depthwise convolution's
    assert {int(codes[name].max()) for name in first} == {127}


def test_case_65_a_clip_stands_where_the_range_is_smaller_than_the_dtype_and_nowhere_else():
    proto = proto_of(exported_together(QUICK, "onnxruntime"))
    metadata = [{entry.key: entry.value for entry in node.metadata_props} for node in ops_of(proto, "Clip")]
    clipped = [entries["qtool.edge"] for entries in metadata if "qtool.edge" in entries]
    edges = converted_together(QUICK, "onnxruntime")[0].plan.edges
    assert sorted(clipped) == sorted(edge.name for edge in edges if edge.spec.qmax == 127)


def test_case_65_every_axis_is_written_and_has_as_many_scales():
    proto = proto_of(exported_together(QUICK, "onnxruntime"))
    arrays = initializers_of(proto)
    weights = [n for n in ops_of(proto, "DequantizeLinear") if n.input[0] in arrays and arrays[n.input[0]].ndim > 1]
    assert len(weights) >= len(QUICK)
    for node in weights:
        axis, scale = attributes_of(node)["axis"], arrays[node.input[1]]
        assert axis == 0
        assert arrays[node.input[0]].dtype == np.int8
        assert scale.shape == arrays[node.input[2]].shape == (arrays[node.input[0]].shape[axis],)


class Transposed(nn.Module):
    """What a reference program holds of a transposed convolution: channels are axis 1 of its weight."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        codes = torch.randint(-127, 128, (4, 6, 3, 3), generator=generator, dtype=torch.int8)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", torch.rand(6, generator=generator) + 0.1)
        self.register_buffer("zero_point", torch.zeros(6, dtype=torch.int32))
        self.register_buffer("bias", torch.randn(6, generator=generator) * 100)

    def forward(self, x):
        grid = (0.5, 10, 0, 127, torch.uint8)
        x = qdq_ops.dequantize_per_tensor(qdq_ops.quantize_per_tensor(x, *grid), *grid)
        weight = qdq_ops.dequantize_per_channel(self.codes, self.scale, self.zero_point, -3, -127, 127, torch.int8)
        return F.conv_transpose2d(x, weight, self.bias)


def test_case_65_a_transposed_convolution_has_axis_1():
    model, x = Transposed(), torch.randn(2, 4, 5, 5) * 20
    made = translate(torch.export.export(model, (x,)), 20)
    quantize_biases(made.graph)
    files = to_files(made, None, external_above_bytes=EXTERNAL_ABOVE_BYTES)
    proto = proto_of(files)
    (weight,) = [n for n in ops_of(proto, "DequantizeLinear") if n.input[0] == "codes"]
    assert attributes_of(weight)["axis"] == 1
    expected = model(x).numpy()
    step = 0.5 * model.scale.max().item()  # of the bias
    np.testing.assert_allclose(run(files.data, x.numpy())[0], expected, atol=step, rtol=1e-5)


def test_case_65_an_opset_without_axis_is_refused_with_the_one_that_has_it():
    with pytest.raises(UsageError, match=r"opset 11 is too old: per-channel weights need opset 13"):
        check_opset(11, known_format("onnx"))


@pytest.mark.parametrize("shape", [(3, 24), (24,), (2, 7, 24), (2, 3, 7, 24)])
def test_a_linear_of_any_rank_is_one_gemm(shape):
    torch.manual_seed(0)
    model, x = nn.Linear(24, 10), torch.randn(shape)
    made = translate(torch.export.export(model, (x,)), 20)
    files = to_files(made, None, external_above_bytes=EXTERNAL_ABOVE_BYTES)
    kinds = [node.op_type for node in proto_of(files).graph.node]
    assert kinds == (["Gemm"] if len(shape) == 2 else ["Reshape", "Gemm", "Reshape"])
    np.testing.assert_allclose(run(files.data, x.numpy())[0], model(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_linear_with_two_dynamic_sizes_takes_both_at_run_time():
    torch.manual_seed(0)
    model, sizes = nn.Linear(6, 5), {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    made = translate(torch.export.export(model, (torch.randn(3, 4, 6),), dynamic_shapes=(sizes,)), 20)
    files = to_files(made, None, external_above_bytes=EXTERNAL_ABOVE_BYTES)
    x = torch.randn(2, 9, 6)
    np.testing.assert_allclose(run(files.data, x.numpy())[0], model(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert onnx.load_model_from_string(files.data).graph.output[0].type.tensor_type.shape.dim[2].dim_value == 5
