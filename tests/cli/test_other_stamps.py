"""Stamps of a format that is not known here: every command says so, with both versions and what to do."""

import json

import pytest

import qtool
from qtool.cli.main import run
from qtool.errors import FileFormatError
from qtool.stamp.schema import FORMAT_VERSION, PLAN_ENTRY, STAMP_ENTRY
from tests.attacks.hostile_programs import entries_of, stamped
from tests.readers.sample_files import zip_bytes
from tests.stamp.fixtures.make import FOLDER

COMMANDS = {
    "inspect": ["inspect", "{file}"],
    "convert": ["convert", "{file}", "-o", "{out}"],
    "move": ["convert", "{file}", "--backend", "x86", "-o", "{out}"],
    "export": ["export", "{file}", "-o", "{out}"],
    "evaluate": ["evaluate", "{file}", "--config", "{config}"],
    "train": ["train", "{config}", "--prepared", "{file}", "-o", "{out}"],
    "bench": ["bench", "{file}"],
}
FUTURE = FORMAT_VERSION + 1
NO_VERSIONS = [0, -1, "1", 1.0, True, None, [1], "missing"]


def with_version(version):
    """A file whose stamp is of that format version, and as today in all else."""
    entries = entries_of((FOLDER / "format_1_int8.pt2").read_bytes())
    stamp = json.loads(entries[STAMP_ENTRY])
    stamp["format_version"] = version
    if version == "missing":
        del stamp["format_version"]
    return zip_bytes(entries | {STAMP_ENTRY: json.dumps(stamp).encode()})


@pytest.fixture
def said(tmp_path, files, capfd):
    """A function that runs a command on a file's bytes, and returns (status, all that was printed)."""

    def run_on(command, data):
        (tmp_path / "file.pt2").write_bytes(data)
        out = tmp_path / "out.onnx"
        words = {"file": tmp_path / "file.pt2", "config": files / "model.yaml", "out": out}
        if command == "train":
            config = json.loads((files / "model.yaml").read_text())
            source = {"kind": "synthetic", "count": 4, "batch_size": 2}
            config |= {"quantize": {"mode": "qat"}, "train": {"epochs": 1}}
            config["data"] = {"train": config["data"]["evaluate"], "calibrate": source}
            words["config"] = tmp_path / "train.yaml"
            words["config"].write_text(json.dumps(config))
        capfd.readouterr()
        status = run([argument.format(**words) for argument in COMMANDS[command]])
        printed = " ".join("".join(capfd.readouterr()).split())
        assert "Traceback" not in printed
        assert not out.exists()
        return status, printed

    return run_on


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stamp_from_the_future_names_both_versions(command, said):
    status, printed = said(command, with_version(FUTURE))
    assert status == (1 if command == "inspect" else 3)
    assert f"format version {FUTURE} is newer than this qtool reads ({FORMAT_VERSION})" in printed
    assert "install the qtool that wrote the file, or a later one" in printed
    assert command != "inspect" or "QT202" in printed


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("version", NO_VERSIONS)
def test_a_version_that_is_none_is_told(command, version, said):
    status, printed = said(command, with_version(version))
    assert status == (1 if command == "inspect" else 3)
    found = None if version == "missing" else version
    assert f"format_version is {found!r}; this qtool reads 1 to {FORMAT_VERSION}" in printed


@pytest.mark.parametrize("version", [FUTURE, 0, "1"])
def test_loading_raises_a_file_format_error(version):
    with pytest.raises(FileFormatError, match=r"format.version"):
        qtool.load(with_version(version))


@pytest.mark.parametrize("command", ["inspect", "move", "export", "evaluate"])
def test_a_plan_from_the_future_beside_a_stamp_of_today(command, said):
    entries = entries_of((FOLDER / "format_1_int8.pt2").read_bytes())
    plan = json.loads(entries[PLAN_ENTRY]) | {"format_version": FUTURE}
    status, printed = said(command, stamped(entries | {PLAN_ENTRY: json.dumps(plan).encode()}))
    assert status == (1 if command == "inspect" else 3)
    assert f"format version {FUTURE} is newer than this qtool reads" in printed
