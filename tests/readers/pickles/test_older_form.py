import io
import os
import pickle
import tarfile

import pytest
import torch

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import FileKind
from tests.readers.pickles.samples import facts_of, mlp, saved


class Calls:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def older(value):
    return saved(value, _use_new_zipfile_serialization=False)


def test_a_file_that_is_cut_ends_in_an_error():
    data = older(mlp().state_dict())
    for length in range(0, len(data), len(data) // 40):
        with pytest.raises(FileFormatError):
            facts_of(data[:length])


def test_storages_behind_the_pickle_have_their_places():
    value = {"a": torch.arange(5), "b": torch.ones(3, dtype=torch.int8), "c": torch.randn(4, dtype=torch.float64)}
    data = older(value)
    with opened_model(data) as model:
        for tensor in model.facts.model.tensors:
            content = b"".join(model.blocks(tensor.place))
            assert content == data[tensor.place.offset :][: tensor.place.num_bytes]
            assert content == value[tensor.name].numpy().tobytes()


def test_a_storage_count_that_is_too_large_is_an_error():
    data = bytearray(older({"a": torch.ones(4)}))
    assert data[-24:-16] == (4).to_bytes(8, "little")
    data[-24:-16] = (2**62).to_bytes(8, "little")
    with pytest.raises(FileFormatError, match="has 4611686018427387904 elements"):
        facts_of(bytes(data))


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_plain_pickle_is_told_with_what_it_would_call(protocol, tmp_path):
    marker = tmp_path / "made"
    facts = facts_of(pickle.dumps({"a": [Calls(marker)]}, protocol))
    assert facts.kind is FileKind.PICKLE
    assert [risk.detail for risk in facts.risks] == ["posix.mkdir"]
    assert facts.model.not_understood == ("what it holds",)
    assert not marker.exists()


def test_an_old_protocol_that_names_something_first(tmp_path):
    facts = facts_of(pickle.dumps(Calls(tmp_path / "made"), 0))
    assert [risk.detail for risk in facts.risks] == ["posix.mkdir"]


def test_the_tar_form_is_an_error_that_says_so():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(FileFormatError, match="oldest form, a tar"):
        facts_of(stream.getvalue())


def test_text_that_begins_with_a_c_is_no_pickle():
    with pytest.raises(FileFormatError, match="not a zip"):
        facts_of(b"class Net:\n    pass\n")
