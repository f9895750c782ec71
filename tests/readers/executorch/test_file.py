"""Programs that ExecuTorch itself wrote, kept as files: their numbers are those of the model they were made of."""

from pathlib import Path

import numpy as np
import pytest

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, FileKind, Role
from qtool.types import Op
from tests.producers import fixtures
from tests.producers.producer import net

FOLDER = Path(fixtures.__file__).parent
NUMPY = {"float32": "<f4", "int8": "i1", "int64": "<i8"}


def values(model, tensor):
    data = b"".join(model.blocks(tensor.place))
    return np.frombuffer(data, NUMPY[tensor.dtype]).reshape(tensor.shape)


def parameters():
    return {name: value.detach().numpy() for name, value in net().named_parameters()}


def test_a_float_program_has_the_layers_and_weights_of_its_model():
    with opened_model(FOLDER / "float.pte") as model:
        facts = model.facts
        found = [(node.op, node.activation, node.groups, node.reads) for node in facts.model.nodes]
        weights = [values(model, node.operand(Role.WEIGHT).tensor) for node in facts.model.nodes]
        biases = [values(model, node.operand(Role.BIAS).tensor) for node in facts.model.nodes]
    assert facts.kind is FileKind.EXECUTORCH
    assert found == [
        (Op.CONV2D, "relu", 1, ()),
        (Op.CONV2D, None, 8, ("convolution",)),
        (Op.LINEAR, None, None, ("convolution (2)",)),
    ]
    made = parameters()
    for name, weight, bias in zip(("stem", "depth", "head"), weights, biases, strict=True):
        np.testing.assert_array_equal(weight, made[f"{name}.weight"])
        np.testing.assert_array_equal(bias, made[f"{name}.bias"])
    assert facts.model.bytes_by_dtype == (("float32", sum(each.nbytes for each in made.values())),)


def test_an_int8_program_has_codes_with_scales_that_give_its_weights_back():
    with opened_model(FOLDER / "quantized.pte") as model:
        nodes = model.facts.model.nodes
        for name, node in zip(("stem", "depth", "head"), nodes, strict=True):
            operand = node.operand(Role.WEIGHT)
            codes, scale = values(model, operand.tensor), values(model, operand.quantization.scale)
            assert not values(model, operand.quantization.zero_point).any()
            steps = scale.reshape(-1, *[1] * (codes.ndim - 1))
            assert np.abs(codes * steps - parameters()[f"{name}.weight"]).max() <= scale.max() / 2 * (1 + 1e-5)
    assert {node.compute for node in nodes} == {Compute.STATIC}
    assert [node.operand(Role.WEIGHT).quantization.axis for node in nodes] == [0, 0, 0]
    grids = [node.operand(role).quantization for node in nodes for role in (Role.INPUT, Role.OUTPUT)]
    assert {(grid.dtype, grid.qmin, grid.qmax) for grid in grids} == {("int8", -128, 127)}
    assert grids[1] == grids[2], "what the first layer writes is what the second reads"
    assert nodes[0].activation == "relu"


def test_what_is_delegated_is_named_and_not_understood():
    with opened_model(FOLDER / "xnnpack.pte") as model:
        facts = model.facts
        blobs = {tensor.name: b"".join(model.blocks(tensor.place)) for tensor in facts.model.tensors}
    assert facts.model.form == "delegated to XnnpackBackend"
    assert facts.model.not_understood == ("what is delegated to XnnpackBackend",)
    assert b"XN01" in blobs["forward: XnnpackBackend 0"][:64]
    assert len(blobs) > 1, "the weights are stored by name"
    assert facts.model.bytes_by_dtype == (("other", sum(map(len, blobs.values()))),)


@pytest.mark.parametrize("name", ["float.pte", "quantized.pte", "xnnpack.pte"])
def test_a_program_cut_short_is_refused(name):
    data = (FOLDER / name).read_bytes()
    for cut in range(8, len(data) - 4, len(data) // 40):
        with pytest.raises(FileFormatError, match="ExecuTorch"), opened_model(data[:cut]):
            pass
