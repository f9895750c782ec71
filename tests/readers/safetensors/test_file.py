import json
import struct

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from torch import nn

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import FileKind
from qtool.readers.safetensors.file import DTYPES


def model_of(data):
    with opened_model(data) as model:
        return model.facts


def values(data):
    """Return every tensor's bytes, by name, as the reader places them."""
    with opened_model(data) as model:
        return {each.name: b"".join(model.blocks(each.place)) for each in model.facts.model.tensors}


def file(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_each_tensor_lies_where_the_library_reads_it(tmp_path):
    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)).half()
    layer[2].float()
    data = safetensors.torch.save(layer.state_dict(), metadata={"format": "pt"})
    found = model_of(data)
    assert found.kind is FileKind.SAFETENSORS
    assert found.model.producer == "safetensors (torch)"
    assert {name: bytes(each.contiguous().numpy().data) for name, each in layer.state_dict().items()} == values(data)
    assert {each.name: each.shape for each in found.model.tensors} == {
        name: tuple(each.shape) for name, each in layer.state_dict().items()
    }
    path = tmp_path / "model"
    path.write_bytes(data)
    assert model_of(path).model == found.model


@pytest.mark.parametrize("word", ["BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64"])
def test_dtypes_are_those_of_numpy(word):
    array = np.zeros((2, 3), np.dtype(DTYPES[word]))
    (tensor,) = model_of(safetensors.numpy.save({"x": array})).model.tensors
    assert (tensor.dtype, tensor.num_bytes) == (DTYPES[word], array.nbytes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu])
def test_dtypes_are_those_of_torch(dtype):
    (tensor,) = model_of(safetensors.torch.save({"x": torch.zeros(2, 3).to(dtype)})).model.tensors
    assert tensor.dtype == str(dtype).removeprefix("torch.")


def test_a_file_without_tensors_and_tensors_without_elements_are_read():
    assert model_of(safetensors.torch.save({"x": torch.zeros(0, 3)})).model.tensors[0].shape == (0, 3)
    assert model_of(file({})).model.tensors == ()


def test_a_dtype_that_is_not_known_is_said():
    facts = model_of(file({"w": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, b"123"))
    assert facts.model.not_understood == ("dtype 'F6_E2M3' of w",)
    assert facts.model.tensors[0].place.num_bytes == 3


@pytest.mark.parametrize("cut", range(10, 216, 13))
def test_a_file_cut_short_is_refused(cut):
    data = safetensors.torch.save({"a.weight": torch.zeros(4, 4), "a.bias": torch.zeros(4)})
    with pytest.raises(FileFormatError, match="safetensors"):
        model_of(data[:cut])
