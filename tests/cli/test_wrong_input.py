"""Wrong input of every kind: a status, one clear message, no traceback, nothing left behind."""

import errno
import os
import zipfile

import pytest
import torch

from qtool.cli.main import run
from qtool.workflows import atomic_file
from tests.cli.models import noisy_classifier
from tests.cli.process import names_in


@pytest.fixture
def fails(capfd, tmp_path):
    """A function that runs a command line which must fail, and returns (status, message)."""

    def run_and_read(*arguments):
        before = names_in(tmp_path)
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert out == ""
        assert "Traceback" not in err
        assert names_in(tmp_path) == before
        return status, err

    return run_and_read


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.pt2"


def test_missing_config(fails, tmp_path, write_config, output):
    write_config()
    status, message = fails("prepare", tmp_path / "modle.yaml", "-o", output)
    assert status == 2
    assert "found no such file; did you mean 'model.yaml'?" in message


def test_missing_file(fails, tmp_path, output):
    status, message = fails("convert", tmp_path / "prepared.pt2", "-o", output)
    assert status == 2
    assert "there is no file" in message


def test_yaml_typo(fails, write_config, output):
    config = write_config({"quantize.reduce_rang": "never"})
    line = next(n for n, text in enumerate(config.read_text().splitlines(), 1) if "reduce_rang" in text)
    status, message = fails("prepare", config, "-o", output)
    assert status == 2
    assert message.startswith(f"{config}:{line}:")
    assert "did you mean 'reduce_range'?" in message


def test_yaml_that_is_none(fails, tmp_path, output):
    (tmp_path / "c.yaml").write_text("version: 1\n model: [")
    status, message = fails("prepare", tmp_path / "c.yaml", "-o", output)
    assert status == 2
    assert f"{tmp_path}/c.yaml:2:" in message


def test_unknown_backend_in_the_config(fails, write_config, output):
    status, message = fails("prepare", write_config({"target.backend": "qnpack"}), "-o", output)
    assert status == 2
    assert "target.backend" in message
    assert "did you mean 'qnnpack'?" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "{files}/prepared.pt2", "-o", "{output}", "--backend", "qnpack"),
        ("inspect", "{files}/int8.pt2", "--backend", "qnpack"),
        ("evaluate", "{files}/int8.pt2", "--config", "{files}/model.yaml", "--engine", "qnpack"),
        ("backends", "qnpack"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_unknown_backend_in_an_option(fails, files, output, arguments):
    status, message = fails(*(argument.format(files=files, output=output) for argument in arguments))
    assert status == 2
    assert "did you mean 'qnnpack'?" in message
    assert message.count("\n") == 1


def test_checkpoint_of_another_shape(fails, write_config, tmp_path, output):
    state = noisy_classifier().state_dict()
    state["4.weight"] = torch.zeros(5, 8)
    torch.save(state, tmp_path / "w.pth")
    config = write_config({"model.random_init": None, "model.checkpoint": "w.pth"})
    status, message = fails("prepare", config, "-o", output)
    assert status == 3
    assert "4.weight" in message
    assert "[5, 8]" in message or "(5, 8)" in message


def test_model_code_that_raises(fails, write_config, output):
    config = write_config({"model.factory": "tests.cli.models:broken_classifier"})
    status, message = fails("prepare", config, "-o", output)
    assert status == 3
    assert "weights of this model moved to another server" in message


def test_model_code_that_exits(fails, write_config, output):
    config = write_config({"model.factory": "tests.cli.models:exiting_classifier"})
    status, _ = fails("prepare", config, "-o", output)
    assert status == 3


def test_factory_that_does_not_exist(fails, write_config, output):
    config = write_config({"model.factory": "tests.cli.models:noisy_clasifier"})
    status, message = fails("prepare", config, "-o", output)
    assert status == 3
    assert "did you mean 'noisy_classifier'?" in message


def test_a_picture_that_does_not_decode(fails, write_config, tmp_path, output):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"this is no picture")
    photos = {"kind": "photos", "folder": "photos", "preprocess": {"resize": 8, "crop": 8}}
    status, message = fails("prepare", write_config({"data.calibrate": photos}), "-o", output)
    assert status == 3
    assert "cat.jpg" in message


def test_not_a_model(fails, tmp_path, output):
    (tmp_path / "x.pt2").write_bytes(b"not a zip")
    for arguments in (["convert", tmp_path / "x.pt2", "-o", output], ["inspect", tmp_path / "x.pt2"]):
        status, message = fails(*arguments)
        assert status == 3
        assert "x.pt2" in message


def test_a_converted_file_cannot_be_converted_again(fails, files, output):
    status, message = fails("convert", files / "int8.pt2", "-o", output)
    assert status == 2
    assert "converted" in message


def test_a_damaged_model(fails, files, tmp_path, output):
    data = bytearray((files / "prepared.pt2").read_bytes())
    with zipfile.ZipFile(files / "prepared.pt2") as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        data[data.index(archive.read(largest)) + 5] ^= 1
    (tmp_path / "x.pt2").write_bytes(data)
    status, message = fails("convert", tmp_path / "x.pt2", "-o", output)
    assert status == 3
    assert "x.pt2" in message


def test_unwritable_output(fails, write_config, tmp_path):
    status, message = fails("prepare", write_config(), "-o", tmp_path / "missing" / "x.pt2")
    assert status == 2
    assert "there is no folder" in message
    assert "noise" not in message  # no work was done


def test_full_disk(fails, write_config, output, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_file.os, "fsync", full)
    status, message = fails("prepare", write_config(), "-o", output)
    assert status == 2
    assert f"cannot write '{output}': No space left on device; nothing was left behind" in message


@pytest.mark.parametrize(
    ("supported", "here"), [(["none"], "none"), (["qnnpack", "none"], "qnnpack")], ids=["no engine", "another engine"]
)
def test_case_02_engine_not_available(fails, files, output, monkeypatch, supported, here):
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", property(lambda _: supported))
    for arguments, option in (
        (["convert", files / "prepared.pt2", "-o", output], "--backend"),
        (["evaluate", files / "int8.pt2", "--config", files / "model.yaml"], "--engine"),
        (["evaluate", files / "int8.pt2", "--config", files / "model.yaml", "--engine", "onednn"], "--engine"),
    ):
        status, message = fails(*arguments)
        assert status == 4
        assert message.count("\n") == 1
        assert ("'onednn'" if "onednn" in arguments else "'fbgemm'") in message
        assert here in message
        assert option in message
        assert "noise" not in message  # no work was done


def test_case_02_inspect_works_without_any_engine(files, capsys, monkeypatch):
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", property(lambda _: ["none"]))
    assert run(["inspect", str(files / "int8.pt2")]) == 0
    assert "fbgemm" in capsys.readouterr().out


def test_case_02_the_smallest_model(fails, write_config, tmp_path, monkeypatch, output):
    config = write_config(
        {
            "model.factory": "torch.nn:Linear",
            "model.kwargs": {"in_features": 4, "out_features": 4},
            "model.inputs": [{"name": "x", "shape": ["batch", 4]}],
        }
    )
    assert run(["prepare", str(config), "-o", str(tmp_path / "linear.pt2")]) == 0
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", property(lambda _: ["none"]))
    assert fails("convert", tmp_path / "linear.pt2", "-o", output)[0] == 4
    assert fails("convert", tmp_path / "linear.pt2", "-o", output, "--backend", "qnpack")[0] == 2


@pytest.fixture
def checkpointed(tmp_path, write_config):
    torch.save(noisy_classifier().state_dict(), tmp_path / "w.pth")
    return write_config({"model.random_init": None, "model.checkpoint": "w.pth"})


@pytest.mark.parametrize("target", ["model.yaml", "w.pth", "link.pth"])
def test_prepare_does_not_replace_what_it_reads(fails, tmp_path, checkpointed, target):
    (tmp_path / "link.pth").symlink_to("w.pth")
    before = [(tmp_path / name).read_bytes() for name in ("model.yaml", "w.pth")]
    status, message = fails("prepare", checkpointed, "-o", tmp_path / target)
    assert status == 2
    assert f"{target}' is read by this command and would be lost; name another file with -o" in message
    assert [(tmp_path / name).read_bytes() for name in ("model.yaml", "w.pth")] == before


def test_convert_does_not_replace_what_it_reads(fails, files, tmp_path):
    copy = tmp_path / "p.pt2"
    copy.write_bytes((files / "prepared.pt2").read_bytes())
    (tmp_path / "hard.pt2").hardlink_to(copy)
    status, message = fails("convert", copy, "-o", tmp_path / "hard.pt2")
    assert status == 2
    assert "is read by this command and would be lost" in message
    assert copy.read_bytes() == (files / "prepared.pt2").read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"), [("x" * 300, "File name too long"), ("a\0b", "embedded null"), ("", "empty")]
)
def test_a_name_that_no_file_can_have(fails, files, write_config, tmp_path, name, reason):
    for arguments in (
        ("inspect", name),
        ("convert", name, "-o", tmp_path / "x"),
        ("evaluate", name, "--config", files / "model.yaml"),
        ("convert", files / "prepared.pt2", "-o", name),
        ("prepare", write_config(), "-o", name),
    ):
        status, message = fails(*arguments)
        assert status == 2
        assert reason in message


def test_code_whose_error_cannot_be_read(fails, write_config, output):
    config = write_config({"model.factory": "tests.cli.models:unreadable_failure"})
    status, message = fails("prepare", config, "-o", output)
    assert status == 3
    assert "building the model raised UnreadableError. That is your code" in message


def test_a_prepared_model_without_calibration_is_not_measured_in_silence(tmp_path, write_config, capfd):
    config = write_config({"data.calibrate": None})
    assert run(["prepare", str(config), "-o", str(tmp_path / "p.pt2")]) == 0
    capfd.readouterr()
    assert run(["evaluate", str(tmp_path / "p.pt2"), "--config", str(config)]) == 0
    assert "note: not calibrated, so measured in float: 5 of the model's activations" in capfd.readouterr().err


def test_verify_of_a_model_without_int8_nodes_says_so(tmp_path, write_config, capfd):
    config = write_config({"quantize.skip": ["*"]})
    assert run(["prepare", str(config), "-o", str(tmp_path / "p.pt2")]) == 0
    capfd.readouterr()
    assert run(["convert", str(tmp_path / "p.pt2"), "-o", str(tmp_path / "q.pt2"), "--verify"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert "verify: no node is int8, so there is nothing to compare" in err
