import collections
import io
import os
import pickle
import pickletools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.readers.pickled import pickle_note, pickled_class

OPCODES = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])


class Calls:
    def __reduce__(self):
        return os.mkdir, ("never made",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_class_is_named_in_every_protocol_and_a_dict_is_none(protocol):
    assert pickled_class(pickle.dumps({"a": [1, 2.0, "os system"]}, protocol)) is None
    assert pickled_class(pickle.dumps(collections.OrderedDict(a=1), protocol)) is None
    assert pickled_class(pickle.dumps(["text", Calls()], protocol)) == "posix.mkdir"


def test_a_pickle_that_is_cut_tells_what_came_before():
    data = pickle.dumps([Calls(), "x" * 1000])
    assert pickled_class(data[:-500]) == "posix.mkdir"


def test_the_older_form_is_four_pickles_in_a_row():
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, Calls()]
    data = b"".join(pickle.dumps(part, 2) for part in parts)
    assert "older form" in pickle_note(data)
    assert "'posix.mkdir' first" in pickle_note(data)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80", b"\x80\x09ab", b"(dp0\n."])
def test_what_does_not_begin_like_a_pickle_of_torch(data):
    assert pickle_note(data) is None


@given(st.lists(OPCODES | st.binary(max_size=4)).map(b"".join))
def test_any_bytes_end_in_a_name_or_none(data):
    for start in (data, b"\x80\x02" + data):
        assert isinstance(pickled_class(start), str | None)
        assert isinstance(pickle_note(start), str | None)


def test_nothing_is_called():
    stream = io.BytesIO(pickle.dumps(Calls()))
    pickled_class(stream.getvalue())
    assert not os.path.exists("never made")  # noqa: PTH110
