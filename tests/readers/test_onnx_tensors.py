"""Tensors are where onnx says they are, and small ones have the numbers that onnx reads."""

import io

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import BITS
from qtool.readers.onnx_messages import DTYPES, read_model
from qtool.readers.onnx_tensors import MAX_NUMBERS, Storage, decoded
from qtool.readers.source import Source
from tests.readers.onnx_models import model_of

WITH_NUMBERS = [
    number for number, word in DTYPES.items() if word.startswith(("int", "uint", "float", "bfloat", "bool"))
]
READ = [number for number in WITH_NUMBERS if not DTYPES[number].startswith(("float8", "float4", "float6"))]
COUNT = 5


def values_of(dtype):
    word = DTYPES[dtype]
    if word == "bool":
        return [1, 0, 1, 1, 0]
    return [0, 1, 3, 2, 1] if word.startswith("u") else [0, 1, -1, -2, 1]


def read(*tensors):
    """The tensors that are read of a model, with their numbers."""
    data = model_of([], {}, tensors=tensors)
    source = Source(io.BytesIO(data), "a", len(data))
    storage = Storage(source)
    found = []
    for message in read_model(source, "").graph.tensors:
        tensor = storage.tensor(message, message.name)
        found.append((tensor, storage.numbers(message, tensor), storage))
    return found


def test_every_dtype_of_onnx_has_a_word():
    words = {value: DTYPES[value] for name, value in TensorProto.DataType.items() if name != "UNDEFINED"}
    assert {word for word in words.values() if word not in BITS} == {"string", "float6_e2m3fn", "float6_e3m2fn"}


@pytest.mark.parametrize("dtype", READ, ids=DTYPES.get)
@pytest.mark.parametrize("raw", [True, False], ids=["bytes", "one by one"])
def test_the_numbers_are_onnxs(dtype, raw):
    proto = helper.make_tensor("t", dtype, [COUNT], values_of(dtype))
    if raw:
        proto = numpy_helper.from_array(numpy_helper.to_array(proto), "t")
    ((tensor, numbers, storage),) = read(proto)
    expected = numpy_helper.to_array(proto)
    assert (tensor.name, tensor.dtype, tensor.shape) == ("t", DTYPES[dtype], (COUNT,))
    assert numbers == tuple(expected.astype(np.float64).tolist())
    if tensor.place is not None:
        assert b"".join(storage.blocks(tensor.place)) == numpy_helper.from_array(expected).raw_data
    assert (tensor.place is not None) == (raw or DTYPES[dtype] in ("float32", "float64"))


def test_bits_of_a_float_are_read_as_it_is():
    values = np.array([1.5, -2.25, 3e38, 1e-40], np.float32)
    bits = values.astype(ml_dtypes.bfloat16)
    assert decoded(bits.tobytes(), "bfloat16", 4) == tuple(bits.astype(np.float64).tolist())
    assert decoded(bytes([0x2F]), "int4", 2) == (-1, 2)
    assert decoded(bytes([0xE4]), "uint2", 4) == (0, 1, 2, 3)
    assert decoded(b"abc", "float32", 1) is None


def test_floats_that_stand_one_by_one_are_plain_bytes():
    values = [float(i) for i in range(300)]
    ((tensor, _, storage),) = read(helper.make_tensor("t", TensorProto.FLOAT, [300], values))
    assert b"".join(storage.blocks(tensor.place)) == np.array(values, np.float32).tobytes()


def test_many_numbers_stay_a_tensor():
    ((tensor, numbers, _),) = read(numpy_helper.from_array(np.ones(MAX_NUMBERS + 1, np.float32), "t"))
    assert numbers is None
    assert tensor.num_bytes == 4 * (MAX_NUMBERS + 1)


def test_other_sizes_than_the_bytes_are_an_error():
    proto = numpy_helper.from_array(np.ones(4, np.int8), "t")
    proto.dims[0] = 5
    with pytest.raises(FileFormatError, match="tensor 't' has 4 bytes, and its dtype and sizes need 5"):
        read(proto)


@pytest.mark.parametrize("dims", [[-1], [2**62], [2**32, 2**32, 2**32], [0, 2**62], [1] * 65])
def test_sizes_that_no_tensor_has_are_an_error(dims):
    with pytest.raises(FileFormatError, match="tensor 't' has sizes that none can have"):
        read(TensorProto(name="t", data_type=TensorProto.INT8, dims=dims))


def test_tensors_that_share_their_bytes_have_one_place(tmp_path):
    words = {"location": "w.bin", "offset": "0", "length": "16"}
    tensors = [TensorProto(name=name, data_type=TensorProto.INT8, dims=[16]) for name in "ab"]
    for proto in tensors:
        proto.data_location = TensorProto.EXTERNAL
        for key, value in words.items():
            proto.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(bytes(range(16)))
    (tmp_path / "m.onnx").write_bytes(model_of([], {}, tensors=tensors))
    with opened_model(tmp_path / "m.onnx") as model:
        assert {tensor.place for tensor in model.facts.model.tensors} == {model.facts.model.tensors[0].place}


def test_all_tensors_of_a_model_that_onnx_saved_beside_it(tmp_path):
    arrays = {f"w{i}": np.random.default_rng(i).standard_normal((i + 1, 400)).astype(np.float32) for i in range(3)}
    proto = onnx.load_from_string(model_of([], arrays))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=2000)
    with opened_model(tmp_path / "m.onnx") as model:
        places = [tensor.place.part for tensor in model.facts.model.tensors]
        read_back = [b"".join(model.blocks(tensor.place)) for tensor in model.facts.model.tensors]
    assert places == ["", "m.data", "m.data"]
    assert read_back == [array.tobytes() for array in arrays.values()]
