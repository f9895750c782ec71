import pytest
import safetensors.torch
import torch

from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, Role
from qtool.types import Op


def layers(tensors, **metadata):
    with opened_model(safetensors.torch.save(tensors, metadata=metadata or None)) as model:
        return {node.name: node for node in model.facts.model.nodes}


def weight_grid(node):
    return node.operand(Role.WEIGHT).quantization


CODES = torch.zeros(8, 64, dtype=torch.int8)


def test_float_layers_are_told_by_the_shape_of_their_weight():
    shapes = {"a": (8, 4, 3, 3), "b": (8, 4, 3), "c": (8, 64), "d": (8,)}
    tensors = {f"{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}
    found = layers(tensors | {"c.bias": torch.zeros(8)})
    assert {name: node.op for name, node in found.items()} == {
        "a": Op.CONV2D,
        "b": Op.CONV1D,
        "c": Op.LINEAR,
        "d": None,
    }
    assert {node.compute for node in found.values()} == {Compute.FLOAT}
    assert found["c"].operand(Role.BIAS).name == "c.bias"


def test_a_matrix_without_bias_may_be_a_table():
    assert layers({"embed.weight": torch.zeros(100, 8)})["embed"].op is None


def test_a_transposed_convolution_is_told_by_its_bias():
    found = layers({"up.weight": torch.zeros(4, 6, 3, 3), "up.bias": torch.zeros(6)})
    assert found["up"].op is Op.CONV_TRANSPOSE2D


@pytest.mark.parametrize(
    ("scale", "axis", "group_size"),
    [((), None, None), ((1,), None, None), ((8,), 0, None), ((8, 1), 0, None), ((8, 4), 1, 16)],
)
def test_scales_beside_a_weight_quantize_it(scale, axis, group_size):
    found = layers({"fc.weight": CODES, "fc.weight_scale": torch.ones(scale)})["fc"]
    grid = weight_grid(found)
    assert (found.op, found.compute, found.target) == (Op.LINEAR, Compute.WEIGHT_ONLY, "compressed-tensors")
    assert (grid.dtype, grid.qmin, grid.qmax) == ("int8", -128, 127)
    assert (grid.axis, grid.group_size) == (axis, group_size)
    assert grid.scale.name == "fc.weight_scale"


def test_a_scale_of_the_input_makes_it_static():
    tensors = {"fc.weight": CODES, "fc.weight_scale": torch.ones(8, 1), "fc.input_scale": torch.ones(1)}
    found = layers(tensors)["fc"]
    assert found.compute is Compute.STATIC
    assert found.operand(Role.INPUT).quantization.scale.name == "fc.input_scale"


def test_float8_in_blocks():
    tensors = {"fc.weight": torch.zeros(256, 256).to(torch.float8_e4m3fn), "fc.weight_scale_inv": torch.ones(2, 2)}
    assert weight_grid(layers(tensors)["fc"]).dtype == "float8_e4m3fn"


@pytest.mark.parametrize("is_awq", [False, True])
def test_packed_words_tell_their_bits_and_groups(is_awq):
    inputs, outputs, group = 64, 32, 16
    packed = (inputs, outputs // 8) if is_awq else (inputs // 8, outputs)
    tensors = {
        "fc.qweight": torch.zeros(packed, dtype=torch.int32),
        "fc.qzeros": torch.zeros(inputs // group, outputs // 8, dtype=torch.int32),
        "fc.scales": torch.ones(inputs // group, outputs, dtype=torch.float16),
    }
    found = layers(tensors)["fc"]
    grid = weight_grid(found)
    assert (grid.dtype, grid.qmin, grid.qmax, grid.axis, grid.group_size) == ("uint4", 0, 15, 0, group)
    assert found.is_weight_in_out
    assert list(layers(tensors)) == ["fc"]


def test_other_names_of_codes_and_scales():
    found = layers({"fc.weight": CODES, "fc.SCB": torch.ones(8)})["fc"]
    assert (found.target, found.note) == ("bitsandbytes", "its scales are SCB / 127")
    assert weight_grid(found).scale is None
    packed = {"fc.weight": torch.zeros(256, 1, dtype=torch.uint8), "fc.weight.absmax": torch.ones(8)}
    assert layers(packed)["fc"].compute is Compute.WEIGHT_ONLY
    words = {"fc.weight_packed": torch.zeros(8, 8, dtype=torch.int32), "fc.weight_scale": torch.ones(8, 4)}
    assert weight_grid(layers(words)["fc"]).group_size == 16


@pytest.mark.parametrize(
    ("said", "target", "compute"),
    [
        ('{"_type": "Int8Tensor", "_data": {"act_quant_kwargs": null}}', "torchao Int8Tensor", Compute.WEIGHT_ONLY),
        ('{"_type": "Int8Tensor", "_data": {"act_quant_kwargs": {}}}', "torchao Int8Tensor", Compute.DYNAMIC),
        ('{"_type": []', "torchao", Compute.WEIGHT_ONLY),
        ("[" * 100_000, "torchao", Compute.WEIGHT_ONLY),
    ],
)
def test_torchao_says_in_the_metadata_how_a_weight_computes(said, target, compute):
    tensors = {"fc._weight_qdata": CODES, "fc._weight_scale": torch.ones(8, 1)}
    found = layers(tensors, **{"fc.weight": said})["fc"]
    assert (found.target, found.compute, weight_grid(found).axis) == (target, compute, 0)


def test_codes_without_scales_are_no_layer():
    assert layers({"table": torch.zeros(4, dtype=torch.int8), "x.weight": CODES}) == {}
