import io
import zipfile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.readers.facts import BITS, Place, Quantization, Tensor
from qtool.readers.pickles.machine import read_pickle
from qtool.readers.pickles.tensors import is_tensor, tensor_of
from qtool.readers.pickles.values import Call, Name, Reference

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:Sparse CSR"),
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
NEWER = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
STORAGE = ("storage", Name("torch", "FloatStorage"), "0", "cpu", 8)


def tensors_of(values):
    """Return (tensor, its bytes) for each value, as read from what torch.save writes of them."""
    stream = io.BytesIO()
    torch.save(values, stream)
    with zipfile.ZipFile(stream) as archive:
        content = {name.removeprefix("archive/"): archive.read(name) for name in archive.namelist()}

    def storage_place(key):
        return Place(part=f"data/{key}", offset=0, num_bytes=len(content[f"data/{key}"]))

    found = read_pickle(content["data.pkl"], where="a.pt", entry="data.pkl")
    assert found.risks == ()
    for number, value in enumerate(found.value):
        tensor = tensor_of(value, f"t{number}", storage_place)
        assert isinstance(tensor, Tensor)
        assert is_tensor(value)
        place = tensor.place
        yield tensor, None if place is None else content[place.part][place.offset :][: place.num_bytes]


def rebuilt(*arguments, name="_rebuild_tensor_v2"):
    return Call(Name("torch._utils", name), arguments)


def place_of_32_bytes(key):
    return Place(part=f"data/{key}", offset=0, num_bytes=32)


def strided(tensor, data, dtype):
    flat = torch.frombuffer(bytearray(data), dtype=dtype)
    return torch.as_strided(flat, tensor.shape, tensor.strides or torch.empty(tensor.shape, device="meta").stride())


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + NEWER, ids=str)
def test_every_dtype_bit_for_bit(dtype):
    value = torch.arange(6).reshape(2, 3).to(torch.float32).to(dtype)
    ((tensor, data),) = tensors_of([value])
    assert (f"torch.{tensor.dtype}", tensor.shape, tensor.strides) == (str(dtype), (2, 3), None)
    assert tensor.dtype in BITS
    assert data == value.contiguous().view(torch.uint8).numpy().tobytes()


def test_views_share_their_bytes_and_keep_their_strides():
    whole = torch.arange(24.0).reshape(2, 3, 4)
    values = [whole, whole.transpose(0, 2), whole[:, 1], whole[1], whole[:1].expand(5, 3, 4), whole[:0], whole[0, 0, 0]]
    for value, (tensor, data) in zip(values, tensors_of(values), strict=True):
        assert tensor.place.part == "data/0"
        assert tensor.shape == tuple(value.shape)
        if value.numel():
            assert torch.equal(strided(tensor, data, torch.float32), value)
        assert (tensor.strides is None) == value.is_contiguous()
    last = list(tensors_of(values))[3][0].place
    assert (last.offset, last.num_bytes) == (48, 48)


def test_parameters_and_tensors_with_attributes():
    plain, named = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    named.note = "kept"
    other = torch.ones(3)
    other.note = "kept"
    found = [tensor for tensor, _ in tensors_of([plain, named, other, torch.nn.Buffer(torch.ones(4))])]
    assert [tensor.shape for tensor in found] == [(2,), (2,), (3,), (4,)]


def test_tensors_without_bytes_of_their_own():
    values = [torch.ones(2, 3, device="meta"), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()]
    found = [tensor for tensor, _ in tensors_of(values)]
    assert [(tensor.dtype, tensor.shape, tensor.place) for tensor in found] == [
        ("float32", (2, 3), None),
        ("float32", (3, 3), None),
        ("float32", (3, 3), None),
    ]


@pytest.mark.parametrize(
    ("dtype", "codes", "qmin", "qmax"),
    [(torch.quint8, "uint8", 0, 255), (torch.qint8, "int8", -128, 127), (torch.qint32, "int32", -(2**31), 2**31 - 1)],
)
def test_one_scale(dtype, codes, qmin, qmax):
    value = torch.quantize_per_tensor(torch.linspace(-1, 1, 6).reshape(2, 3), 0.125, 3, dtype)
    ((tensor, data),) = tensors_of([value])
    assert tensor.quantization == Quantization(dtype=codes, qmin=qmin, qmax=qmax, scale=(0.125,), zero_point=(3,))
    assert (tensor.dtype, tensor.shape) == (codes, (2, 3))
    assert data == value.int_repr().numpy().tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_scale_for_each_channel(axis):
    scales = torch.arange(1, 4, dtype=torch.float64)[: 3 - axis]
    zero_points = torch.arange(3 - axis)
    value = torch.quantize_per_channel(torch.linspace(-1, 1, 6).reshape(3, 2), scales, zero_points, axis, torch.qint8)
    ((tensor, data),) = tensors_of([value])
    quantization = tensor.quantization
    assert (quantization.axis, quantization.qmin, quantization.qmax) == (axis, -128, 127)
    assert (quantization.scale.dtype, quantization.zero_point.dtype) == ("float64", "int64")
    assert quantization.scale.shape == (3 - axis,)
    assert data == value.int_repr().numpy().tobytes()


def test_a_storage_on_another_device_and_its_id_as_an_older_torch_writes_it():
    cuda = ("storage", Name("torch.cuda", "FloatStorage"), "0", "cuda:0", 8, ("1", 2, 4))
    tensor = tensor_of(rebuilt(Reference(cuda), 1, (3,), (1,), False, {}), "a", place_of_32_bytes)
    assert tensor.place == Place(part="data/0", offset=12, num_bytes=12)


@pytest.mark.parametrize("value", [None, 1, "a", [], {}, Name("torch", "float32"), Call(Name("os", "system"), ("ls",))])
def test_no_tensor(value):
    assert tensor_of(value, "a", place_of_32_bytes) is None
    assert not is_tensor(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (rebuilt(), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, (3,), (1, 2)), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, (-3,), (1,)), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, (2**70,), (1,)), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, (1,) * 100, (1,) * 100), "is damaged"),
        (rebuilt(Reference(STORAGE), "0", (3,), (1,)), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, "333", (1,)), "is damaged"),
        (rebuilt(Reference("storage"), 0, (3,), (1,)), "is damaged"),
        (rebuilt(Reference(("storage", Name("os", "system"), "0", "cpu", 8)), 0, (3,), (1,)), "is damaged"),
        (rebuilt(Reference(STORAGE), 0, (9,), (1,)), "takes bytes 0..36 of a storage that has 32"),
        (rebuilt(Reference(STORAGE), 8, (1,), (1,)), "takes bytes 32..36"),
        (rebuilt(Reference(STORAGE), -1, (1,), (1,)), "takes bytes -4"),
        (rebuilt(Reference(STORAGE), 0, (2,), (2**62,)), "of a storage that has 32"),
        (rebuilt(Reference((*STORAGE, ("1", 4, 9))), 0, (2,), (1,)), "a view of bytes 16..52"),
        (rebuilt(Reference(STORAGE), 0, (2,), (1,), (Name("os", "system"), 1, 0), name="_rebuild_qtensor"), "damaged"),
        (rebuilt(Reference(STORAGE), 0, (2,), (1,), (), name="_rebuild_qtensor"), "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_one_is_an_error(value, words):
    with pytest.raises(FileFormatError, match=r"tensor 'a'|a view") as info:
        tensor_of(value, "a", place_of_32_bytes)
    assert words in str(info.value)


def test_wrapped_without_end():
    value = rebuilt(Reference(STORAGE), 0, (3,), (1,))
    for _ in range(100_000):
        value = rebuilt(value, True, {}, name="_rebuild_parameter")
    assert tensor_of(value, "a", place_of_32_bytes) is None


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.just(Reference(STORAGE)) | st.just(Name("torch", "int8")),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=7).map(tuple),
    max_leaves=12,
)


@given(name=st.sampled_from(["_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor", "_rebuild_sparse_tensor",
                             "_rebuild_meta_tensor_no_storage", "_rebuild_wrapper_subclass", "_rebuild_parameter"]),
       arguments=st.lists(VALUES, max_size=8))  # fmt: skip
def test_any_arguments_end_in_a_tensor_or_an_error(name, arguments):
    try:
        tensor_of(rebuilt(*arguments, name=name), "a", place_of_32_bytes)
    except FileFormatError:
        return
