"""Inputs, outputs and sizes bear names that a user knows."""

import logging

import numpy as np
import torch
from torch import nn

from qtool.exporters.pt2 import pt2_differences, pt2_files
from tests.exporters.onnx.exported import exported_pattern, proto_of, run, to_onnx
from tests.exporters.onnx.test_model import converted_model


class Outputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return {"logits": y, "aux": [y, x, None], "x": y + 1, "linear": -y}


def names(values):
    return [value.name for value in values]


def test_a_single_tensor_is_called_output():
    proto = proto_of(exported_pattern("conv2d_bn_relu6"))
    assert (names(proto.graph.input), names(proto.graph.output)) == (["input"], ["output"])


def test_outputs_are_named_for_their_keys_and_each_is_there(caplog):
    x = torch.randn(8, 4)
    converted = converted_model(Outputs(), x)
    files = to_onnx(converted)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]  # torch tells of the None
    proto = proto_of(files)
    assert names(proto.graph.input) == ["x"]
    assert names(proto.graph.output) == ["logits", "aux.0", "aux.1", "x_output", "linear"]
    found = dict(zip(names(proto.graph.output), run(files.data, x.numpy()), strict=True))
    np.testing.assert_array_equal(found["logits"], found["aux.0"])
    np.testing.assert_array_equal(found["aux.1"], x.numpy())
    np.testing.assert_allclose(found["x_output"], found["logits"] + 1, rtol=1e-6)
    np.testing.assert_allclose(found["linear"], -found["logits"])
    assert list(pt2_differences(converted, pt2_files(converted), (x,))) == list(found)


def test_sizes_are_the_stamped_words():
    proto = proto_of(exported_pattern("conv2d_bn_relu6"))
    words = {
        dim.dim_param for v in (*proto.graph.value_info, *proto.graph.output) for dim in v.type.tensor_type.shape.dim
    }
    assert words == {"", "batch"}
