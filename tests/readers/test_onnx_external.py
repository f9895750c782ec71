"""Data beside a model is read from its own folder alone; every other place is told, and not opened."""

import os

import pytest
from onnx import TensorProto

from qtool.errors import FileFormatError
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Place
from qtool.readers.risks import RiskKind
from tests.readers.onnx_models import model_of

CONTENT = bytes(range(64))


def model(location, **words):
    """A model with one tensor of 16 bytes in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.INT8, dims=[16], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **words}.items():
        tensor.external_data.add(key=key, value=value)
    return model_of([], {}, tensors=[tensor])


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    for path in (tmp_path / "secret", inside / "w.bin", inside / "deep" / "w.bin"):
        path.write_bytes(CONTENT)
    (inside / "link").symlink_to("../secret")
    (inside / "near").symlink_to("w.bin")
    (inside / "up").symlink_to("..")
    os.mkfifo(inside / "pipe")
    return inside


def facts(folder, data):
    (folder / "m.onnx").write_bytes(data)
    with opened_model(folder / "m.onnx") as model:
        return model.facts


@pytest.mark.parametrize(
    ("location", "words", "offset"),
    [("w.bin", {}, 0), ("./w.bin", {}, 0), ("deep/w.bin", {"offset": "48", "length": "16"}, 48)],
)
def test_data_in_the_folder_is_read(folder, location, words, offset):
    (folder / "m.onnx").write_bytes(model(location, **words))
    with opened_model(folder / "m.onnx") as opened:
        (tensor,) = opened.facts.model.tensors
        assert tensor.place == Place(part=location, offset=offset, num_bytes=16)
        assert b"".join(opened.blocks(tensor.place)) == CONTENT[offset : offset + 16]
    assert not opened.facts.risks


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("../secret", "another folder"),
        ("deep/../../secret", "another folder"),
        ("/etc/passwd", "absolute path"),
        ("/dev/zero", "absolute path"),
        ("C:secret", "absolute path"),
        ("..\\secret", "absolute path"),
        ("link", "symbolic link"),
        ("near", "symbolic link"),
        ("up/secret", "symbolic link"),
        ("pipe", "no regular file"),
        ("deep", "no regular file"),
        ("", "without a name"),
        ("w\0.bin", "without a name"),
    ],
)
def test_a_place_outside_is_told(folder, location, what):
    (risk,) = facts(folder, model(location)).risks
    assert (risk.kind, risk.entry) == (RiskKind.OUTSIDE, location)
    assert what in risk.detail


@pytest.mark.parametrize(
    ("location", "words", "what"),
    [
        ("missing", {}, "not there"),
        ("w.bin/missing", {}, "not there"),
        ("w.bin", {"offset": "49"}, "ends at byte 65 and the file has 64"),
        ("w.bin", {"length": "15"}, "has 15 bytes and needs 16"),
        ("w.bin", {"offset": "-1"}, "is no number"),
        ("w.bin", {"offset": "1" * 400}, "is no number"),
        ("w.bin", {"length": "nan"}, "is no number"),
        ("w.bin", {"length": "²"}, "is no number"),
    ],
)
def test_data_that_is_not_there_is_told(folder, location, words, what):
    found = facts(folder, model(location, **words))
    (risk,) = found.risks
    assert (risk.kind, risk.entry) == (RiskKind.MISSING_DATA, location)
    assert what in risk.detail
    assert found.model.tensors[0].place is None


def test_bytes_alone_have_nothing_beside_them():
    with opened_model(model("w.bin")) as opened:
        (risk,) = opened.facts.risks
    assert (risk.kind, risk.entry) == (RiskKind.MISSING_DATA, "w.bin")


@pytest.mark.parametrize("change", ["removed", "shorter", "a link", "a pipe"])
def test_data_that_changes_while_it_is_read_is_an_error(folder, change):
    (folder / "m.onnx").write_bytes(model("w.bin"))
    with opened_model(folder / "m.onnx") as opened:
        (tensor,) = opened.facts.model.tensors
        (folder / "w.bin").unlink()
        {
            "removed": lambda path: None,
            "shorter": lambda path: path.write_bytes(b"1234"),
            "a link": lambda path: path.symlink_to("../secret"),
            "a pipe": os.mkfifo,
        }[change](folder / "w.bin")
        with pytest.raises(FileFormatError):
            list(opened.blocks(tensor.place))
