"""An average pool whose last window hangs over the edge, in ONNX Runtime's int8 kernel too."""

import pytest
import torch
from torch import nn

from qtool.errors import ModelError
from qtool.exporters.onnx.verify import onnx_differences
from tests.exporters.onnx.exported import to_onnx
from tests.exporters.onnx.test_model import converted_model


def test_what_hangs_over_the_edge_is_not_counted():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    converted = converted_model(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AvgPool2d(3, 2, ceil_mode=True)), x)
    found = onnx_differences(converted, to_onnx(converted), None, (x,))
    assert max(max(steps.values()) for steps in found.values()) <= 1


def test_a_pool_that_onnx_runtime_computes_wrong_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(3, 2, padding=1, ceil_mode=True))
    converted = converted_model(model, torch.randn(2, 3, 8, 8))
    with pytest.raises(ModelError, match="'1' is an average pool with padding, ceil_mode and count_include_pad"):
        to_onnx(converted)
