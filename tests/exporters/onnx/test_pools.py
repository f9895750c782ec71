"""An average pool whose last window hangs over the edge, in ONNX Runtime's int8 kernel too."""

import torch
from torch import nn

from qtool.exporters.onnx.verify import onnx_differences
from tests.exporters.onnx.exported import to_onnx
from tests.exporters.onnx.test_model import converted_model


def test_what_hangs_over_the_edge_is_not_counted():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    converted = converted_model(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AvgPool2d(3, 2, ceil_mode=True)), x)
    found = onnx_differences(converted, to_onnx(converted), None, (x,))
    assert max(max(steps.values()) for steps in found.values()) <= 1
