import io
import json

import numpy as np
import pytest

from qtool.errors import FileFormatError
from qtool.readers.archive import read_archive
from qtool.readers.facts import ModelFacts
from qtool.readers.programs.tables import stored_tensors
from tests.readers.sample_files import WEIGHTS_TABLE, program_entries, zip_bytes


def sizes(changes: dict[str, bytes]) -> tuple[tuple[str, int], ...]:
    with read_archive(zip_bytes(program_entries() | changes)) as archive:
        return ModelFacts(tensors=stored_tensors(archive)).bytes_by_dtype


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_bytes_are_counted_by_dtype_and_shared_ones_once():
    assert sizes({}) == (("int8", 36), ("float32", 16))


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.zeros(3, np.float32), "float32"),
        (np.zeros((2, 3), np.int64), "int64"),
        (np.zeros(3, np.uint8), "uint8"),
        (np.zeros(3, bool), "bool"),
        (np.zeros(3, np.complex64), "other"),
    ],
)
def test_arrays_beside_the_program_count_too(array, dtype):
    data = npy(array)
    num_bytes = array.nbytes if dtype != "other" else len(data)
    assert dict(sizes({"qtool/observer/0.x.npy": data}))[dtype] == num_bytes + {"float32": 16}.get(dtype, 0)


def test_an_array_without_header_is_other():
    assert dict(sizes({"qtool/x.npy": b"12345", "qtool/y.npy": b""}))["other"] == 5


def test_a_dtype_that_is_not_known_is_other():
    table = json.loads(program_entries()[WEIGHTS_TABLE])
    table["config"]["stem.scale"]["tensor_meta"] = {"dtype": 99}
    assert dict(sizes({WEIGHTS_TABLE: json.dumps(table).encode()}))["other"] == 16


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"[]", "no 'config'"),
        (b'{"config": 5}', "no 'config'"),
        (b'{"config": {"w": 5}}', "without 'path_name'"),
        (b'{"config": {"w": {"path_name": "gone"}}}', "no entry 'data/weights/gone'"),
        (b"", "not valid JSON"),
    ],
)
def test_a_table_of_another_form_is_a_format_error(table, message):
    with pytest.raises(FileFormatError, match=message):
        sizes({WEIGHTS_TABLE: table})
