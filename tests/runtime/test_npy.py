import io

import numpy as np
import pytest

from qtool.errors import FileFormatError
from qtool.runtime.npy import array_bytes, array_from


@pytest.mark.parametrize(
    "array",
    [np.array(3, dtype=np.int64), np.zeros((0, 4), dtype=np.uint8), np.arange(6.0).reshape(2, 3).T, np.array([np.nan])],
)
def test_arrays_come_back(array):
    found = array_from(array_bytes(array), where="a")
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_a_header_that_lies_about_the_size_is_refused_before_anything_is_allocated():
    data = array_bytes(np.zeros(4, dtype=np.float32)).replace(b"(4,), ", b"(9999999999999,), ")
    with pytest.raises(FileFormatError, match=r"x: is no array .*; the file is damaged"):
        array_from(data, where="x")


def test_objects_and_rubbish_are_refused():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}]), allow_pickle=True)
    for data in (buffer.getvalue(), b"", b"\x93NUMPY", b"PK nothing"):
        with pytest.raises(FileFormatError, match="is no array"):
            array_from(data, where="x")
