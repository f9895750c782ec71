import warnings

import pytest
import torch
from torch import nn

from qtool.readers.facts import Compute, FileKind, Role
from qtool.types import Op
from tests.readers.pickles.samples import bytes_of, facts_of, mlp, nodes_of, saved

with warnings.catch_warnings(action="ignore"):
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int8DynamicActivationInt8WeightConfig,
        Int8DynamicActivationIntxWeightConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup


def quantized(config):
    model = mlp()
    with warnings.catch_warnings(action="ignore"):
        quantize_(model, config)
    return model


@pytest.mark.parametrize(
    ("config", "compute", "dtype", "axis", "group_size", "qmin"),
    [
        (Int8WeightOnlyConfig(), Compute.WEIGHT_ONLY, "int8", 0, None, -128),
        (Int8DynamicActivationInt8WeightConfig(), Compute.DYNAMIC, "int8", 0, None, -128),
        (Int8DynamicActivationIntxWeightConfig(), Compute.DYNAMIC, "int8", 1, 32, -128),
        (IntxWeightOnlyConfig(torch.int4, PerGroup(16)), Compute.WEIGHT_ONLY, "int8", 1, 16, -8),
        (Float8WeightOnlyConfig(), Compute.WEIGHT_ONLY, "float8_e4m3fn", 0, None, -448),
    ],
    ids=["int8", "int8_dynamic", "intx_dynamic", "int4", "float8"],
)  # fmt: skip
def test_a_state_dict(config, compute, dtype, axis, group_size, qmin):
    model = quantized(config)
    data = saved(model.state_dict())
    facts = facts_of(data)
    assert (facts.kind, facts.model.producer) == (FileKind.CHECKPOINT, "torchao")
    assert all(risk.detail.startswith("torchao.") for risk in facts.risks)
    node = nodes_of(data)["0"]
    weight = node.operand(Role.WEIGHT)
    assert (node.op, node.compute, node.note) == (Op.LINEAR, compute, "")
    assert (weight.tensor.dtype, weight.tensor.shape) == (dtype, (32, 64))
    assert (weight.quantization.axis, weight.quantization.group_size) == (axis, group_size)
    assert weight.quantization.qmin == qmin
    assert node.operand(Role.BIAS).tensor.name == "0.bias"
    codes = model[0].weight.qdata
    assert bytes_of(data)["0.weight.qdata"][1] == codes.contiguous().view(torch.uint8).numpy().tobytes()
    assert bytes_of(data)["0.weight.scale"][1] == model[0].weight.scale.detach().numpy().tobytes()


def test_a_module():
    layer = nn.Linear(64, 32)
    layer.weight = quantized(Int8WeightOnlyConfig())[0].weight
    facts = facts_of(saved(nn.Sequential(layer)))
    assert (facts.kind, facts.model.form) == (FileKind.MODULE, "module with quantized weights")
    assert [(node.name, node.compute) for node in facts.model.nodes] == [("0", Compute.WEIGHT_ONLY)]


def test_what_is_left_float_beside():
    model = quantized(Int8WeightOnlyConfig())
    model.append(nn.Conv1d(2, 2, 1))
    assert nodes_of(saved(model.state_dict()))["3"].compute is Compute.FLOAT
