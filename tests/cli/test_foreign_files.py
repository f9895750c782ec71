"""Case 59: files that are not qtool's, given to every command: what each is, what to do, and nothing is unpickled."""

import io
import json
import os
import warnings

import pytest
import torch
from torch import nn
from torch.ao.nn.intrinsic.quantized import ConvReLU2d
from torch.ao.nn.quantized import Linear

import qtool
from qtool.cli.main import run
from qtool.errors import QtoolError
from qtool.readers.facts import FileKind

COMMANDS = {
    "inspect": ["inspect", "{file}"],
    "convert": ["convert", "{file}", "-o", "{out}"],
    "export": ["export", "{file}", "-o", "{out}"],
    "evaluate": ["evaluate", "{file}", "--config", "{config}"],
    "qtool.load": [],
}


class MakesFolder:
    """A class whose unpickling would leave a folder behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def saved(value, **settings):
    buffer = io.BytesIO()
    torch.save(value, buffer, **settings)
    return buffer.getvalue()


def with_marker(module, marker):
    module.marker = MakesFolder(str(marker))
    return module


def scripted(marker):
    del marker
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        torch.jit.save(torch.jit.script(nn.Linear(4, 3)), buffer)
    return buffer.getvalue()


def exported(marker):
    del marker
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(nn.Linear(4, 3).eval(), (torch.zeros(2, 4),)), buffer)
    return buffer.getvalue()


def older(value):
    return saved(value, _use_new_zipfile_serialization=False)


OLDER = "torch.save in its older form, a pickle and no zip"
FILES = {
    "a quantized module": (lambda m: saved(with_marker(ConvReLU2d(3, 4, 3), m)), "a whole module, pickled"),
    "a float module": (lambda m: saved(with_marker(nn.Sequential(nn.Linear(4, 3)), m)), "a whole module, pickled"),
    "a state dict": (lambda _: saved(nn.Linear(4, 3).state_dict()), "a checkpoint of torch.save"),
    "a quantized state dict": (lambda _: saved(Linear(4, 3).state_dict()), "pt"),
    "a TorchScript archive": (scripted, "a TorchScript archive"),
    "an exported program": (exported, "an exported program"),
    "an older state dict": (lambda _: older(nn.Linear(4, 3).state_dict()), f"{OLDER}; it holds weights"),
    "an older module": (lambda m: older(with_marker(nn.Linear(4, 3), m)), f"{OLDER}; it holds more than weights"),
    "a pickle": (lambda m: __import__("pickle").dumps(MakesFolder(str(m))), "a Python pickle; it holds more than"),
    "an ONNX model": (lambda _: b"\x08\x0a\x12\x05torch\x3a\x04\x12\x02ab", "ONNX"),
    "an empty file": (lambda _: b"", "empty file"),
    "a cut archive": (lambda m: exported(m)[:-100], "cut short"),
    "a picture": (lambda _: b"\x89PNG\r\n\x1a\n", "not a zip archive"),
}
INSPECTED = {
    "an older state dict": "it is a checkpoint of torch.save",
    "an older module": "it is a whole module, pickled",
    "a pickle": "a pickle that torch.save did not write",
}
"""What inspect, which reads these, says of them in place of that."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of these files; they are written once."""
    folder = tmp_path_factory.mktemp("foreign")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.ao, which is deprecated
        for name, (make, _) in FILES.items():
            (folder / f"{name}.pt").write_bytes(make(folder / "marker"))
    (folder / "a folder.pt").mkdir()
    return folder


def outcome(command, file, out, config, capfd):
    if command == "qtool.load":
        with pytest.raises(QtoolError) as caught:
            qtool.load(file)
        return caught.value.exit_code, str(caught.value)
    words = {"file": file, "out": out, "config": config}
    capfd.readouterr()
    status = run([argument.format(**words) for argument in COMMANDS[command]])
    printed, said = capfd.readouterr()
    assert command == "inspect" or printed == ""
    return status, " ".join((printed + said).split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_case_59_it_is_told_what_a_file_is_and_nothing_is_unpickled(name, command, kept, files, tmp_path, capfd):
    out = tmp_path / "out.onnx"
    status, said = outcome(command, kept / f"{name}.pt", out, files / "model.yaml", capfd)
    assert status in ((1, 3) if command == "inspect" else (3,))
    wanted = INSPECTED.get(name, FILES[name][1]) if command == "inspect" else FILES[name][1]
    assert wanted in said
    assert "Traceback" not in said
    assert not out.exists()
    assert not (kept / "marker").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_case_59_a_folder(command, kept, files, tmp_path, capfd):
    status, said = outcome(command, kept / "a folder.pt", tmp_path / "out", files / "model.yaml", capfd)
    assert status == 2
    assert "folder" in said or "directory" in said
    assert "Traceback" not in said


def test_case_59_a_quantized_module_says_what_to_do(kept):
    with pytest.raises(QtoolError) as caught:
        qtool.load(kept / "a quantized module.pt")
    assert "save what qtool.convert returned with qtool.save" in str(caught.value)
    with pytest.raises(QtoolError) as caught:
        qtool.load(kept / "a state dict.pt")
    assert "model.checkpoint of a config" in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_case_58_inspect_tells_by_content_and_json_says_the_same(name, kept, capfd):
    capfd.readouterr()
    status = run(["inspect", str(kept / f"{name}.pt"), "--json"])
    printed, said = capfd.readouterr()
    if status == 1:
        assert json.loads(printed)["file"]["kind"] in {*FileKind} - {"zip"}
    else:
        assert (status, printed) == (3, "")
        assert said.count("\n") == 1
    assert not (kept / "marker").exists()
