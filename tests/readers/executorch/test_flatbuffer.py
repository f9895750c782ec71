import struct

import pytest

from qtool.errors import FileFormatError
from qtool.readers.executorch.flatbuffer import Flatbuffer
from qtool.readers.executorch.storage import _strides

# Root at 12; its vtable at 4 says: 8 bytes long, a table of 8 bytes, one field at byte 4.
ONE = struct.pack("<IHHHxxiI", 12, 6, 8, 4, 8, 7)


def test_fields_are_numbers_or_their_default():
    root = Flatbuffer(ONE, "file").root()
    assert (root.number(0, "I"), root.number(1, "I"), root.decimal(3)) == (7, 0, 0.0)
    assert (root.table(2), list(root.tables(2)), root.numbers(2, "I"), root.text(2)) == (None, [], (), "")


@pytest.mark.parametrize("read", [lambda t: t.table(0), lambda t: t.text(0), lambda t: t.numbers(0, "Q")])
def test_an_offset_out_of_the_buffer_is_an_error(read):
    with pytest.raises(FileFormatError, match="file: it looks like an ExecuTorch program, but"):
        read(Flatbuffer(ONE[:-4] + b"\xff\xff\xff\x7f", "file").root())


def test_a_text_that_is_not_utf8_is_read_with_replacements():
    data = ONE[:-4] + struct.pack("<II", 4, 3) + b"a\xffb"
    assert Flatbuffer(data, "file").root().text(0) == "a�b"


def test_parts_are_counted_however_often_offsets_lead_to_them():
    root = Flatbuffer(ONE[:-4] + struct.pack("<II", 4, 1600) + b"\0" * 6400, "file").root()
    with pytest.raises(FileFormatError, match="more than 350000 parts"):
        sum(len(root.numbers(0, "I")) for _ in range(6000))


def test_strides_follow_the_order_of_dimensions():
    assert _strides((2, 3, 4), (0, 1, 2)) is None
    assert _strides((1, 3, 2, 2), (0, 2, 3, 1)) == (12, 1, 6, 3)
    assert _strides((2, 3), (0, 0)) is None
