"""`qtool init`: the config it writes is right, and nothing is written over."""

import pytest

from qtool.cli.main import run
from qtool.config.load import load_config
from qtool.config.starter import starting_config


@pytest.mark.parametrize("model", ["resnet18", "tests.cli.models:noisy_classifier"])
def test_what_it_writes_loads(model, tmp_path, capsys):
    path = tmp_path / "model.yaml"
    assert run(["init", model, "-o", str(path)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{path}: written; next: qtool config check {path}\n")
    assert load_config(path).model.factory.endswith(model)
    assert run(["config", "check", str(path)]) == 0


@pytest.mark.parametrize("words", [[], ["-o", "-"]])
def test_to_standard_output(words, capsys):
    assert run(["init", "resnet18", *words]) == 0
    assert capsys.readouterr().out == starting_config("resnet18")


def test_a_file_that_is_there_stays_as_it_is(tmp_path, capsys):
    path = tmp_path / "model.yaml"
    path.write_text("mine")
    assert run(["init", "resnet18", "-o", str(path)]) == 2
    assert capsys.readouterr().err == (f"qtool init: -o: '{path}' is there already; name another file, or remove it\n")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("file", ["", "missing/model.yaml", "a\0b", "x" * 5000])
def test_a_file_that_cannot_be_written(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["init", "resnet18", "-o", file]) == 2
    assert "internal error" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name(capsys):
    assert run(["init", "resnet81"]) == 2
    assert capsys.readouterr().err.startswith("qtool init: torchvision has no model 'resnet81'; did you mean")
