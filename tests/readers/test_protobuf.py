"""Fields come out of a message as protobuf writes them; damage ends in one error, however large the file."""

import io

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.readers.protobuf import Messages, signed
from qtool.readers.source import Source


def messages(data, max_fields=1000):
    return Messages(Source(io.BytesIO(data), "a", len(data)), "a message", max_fields)


def fields(data, **bounds):
    return list(messages(data, **bounds).fields(0, len(data)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.text(), st.floats(width=32, allow_nan=False))
def test_the_numbers_and_texts_are_protobufs(ints, text, number):
    proto = onnx.AttributeProto(name=text, f=number, ints=ints, type=onnx.AttributeProto.INTS)
    data = proto.SerializeToString()
    reader = messages(data)
    found = list(reader.fields(0, len(data)))
    by_number = {field.number: field for field in found}
    assert reader.text(by_number[1]) == text
    assert [signed(field.value) for field in found if field.number == 8] == ints
    assert len(reader.bytes_of(by_number[2])) == 4


def test_packed_numbers():
    tensor = onnx.TensorProto(int32_data=[1, -1, 300])
    data = tensor.SerializeToString()
    reader = messages(data)
    (field,) = reader.fields(0, len(data))
    assert [signed(value) for value in reader.varints(field)] == [1, -1, 300]


def test_what_is_long_is_stepped_over(tmp_path):
    """A message of 1 GB, most of it one field, in a file with a hole."""
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(b"\x08\x07\x12\x80\x80\x80\x80\x04")  # a number; a field of 2^30 bytes
        file.seek(2**30, io.SEEK_CUR)
        file.write(b"\x18\x05")
    with path.open("rb") as file:
        reader = Messages(Source(file, "a", path.stat().st_size), "a message", 10)
        found = list(reader.fields(0, path.stat().st_size))
    assert [(field.number, field.value, field.end - field.start) for field in found] == [
        (1, 7, 0),
        (2, 0, 2**30),
        (3, 5, 0),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # a number that is not there
        b"\x08" + b"\xff" * 10 + b"\1",  # of eleven bytes
        b"\x12\x05abc",  # five bytes, and three are there
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # 2^63 - 1 bytes
        b"\x0d\0\0",  # four bytes of a float, and two are there
        b"\x0b\x0c",  # a group, which protobuf has given up
        b"\x0f\0",  # a kind that does not exist
        b"\x00\x01",  # field 0
    ],
)
def test_damage_is_an_error(data):
    with pytest.raises(FileFormatError, match="a: it looks like a message, but is damaged"):
        fields(data)


def test_a_field_ends_in_the_message_around_it():
    data = b"\x0a\x02\x12\x05abcde"  # a message of two bytes, whose field says it has five
    reader = messages(data)
    (outer,) = (field for field in reader.fields(0, 4))
    with pytest.raises(FileFormatError):
        list(reader.fields(outer.start, outer.end))


def test_the_number_of_fields_is_bounded():
    assert len(fields(b"\x08\x01" * 10, max_fields=10)) == 10
    with pytest.raises(FileFormatError, match="a message of more than 10 parts is not read"):
        fields(b"\x08\x01" * 11, max_fields=10)


def test_a_number_on_the_edge_of_the_window():
    data = b"\x08\x01" * 32767 + b"\x08\xac\x02" + b"\x08\x01" * 9
    assert [field.value for field in fields(data, max_fields=10**6)] == [1] * 32767 + [300] + [1] * 9
