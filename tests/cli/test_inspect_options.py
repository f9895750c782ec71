"""`qtool inspect` with a target, and the status it ends with."""

import json

import pytest

from qtool.cli.main import run
from qtool.types import Isa
from tests.readers.sample_files import file_bytes, sample_file, sample_plan, zip_bytes

ENGINE_LESS = {"backend": "onnxruntime", "reduced": frozenset({"stem", "depth", "head"})}


@pytest.fixture
def inspect(tmp_path, capfd):
    """Runs the command on bytes; returns status, stdout and stderr."""

    def run_on(data, *options):
        path = tmp_path / "model"
        path.write_bytes(data)
        status = run(["inspect", str(path), *options])
        return (status, *capfd.readouterr())

    return run_on


def codes(out):
    return {finding["code"] for finding in json.loads(out)["findings"]}


def test_status_0_is_for_ok_alone(inspect):
    assert inspect(sample_file())[0] == 0
    assert inspect(sample_file(), "--backend", "qnnpack")[0] == 1
    assert inspect(file_bytes(None, sample_plan()))[0] == 1
    assert inspect(zip_bytes({"word/document.xml": b""}), "--backend", "fbgemm")[0] == 1


def test_warnings_end_with_status_1_where_asked(inspect):
    warned = sample_file(backend="qnnpack", reduced=frozenset({"stem"}))
    status, out, err = inspect(warned, "--isa", "vnni", "--json")
    assert (status, codes(out), err) == (0, {"QT305"}, "")
    status, out, _ = inspect(warned, "--isa", "vnni", "--fail-on", "warning")
    assert status == 1
    assert out.startswith("findings: ")
    assert "does not fit qnnpack, isa vnni (1 warning)" in out.replace("\n", " ")
    assert inspect(sample_file(), "--fail-on", "warning")[0] == 0
    assert inspect(sample_file(), "--fail-on", "info")[0] == 2


def test_an_engine_is_a_backend_that_must_be_here(inspect, monkeypatch):
    monkeypatch.setattr("qtool.backends.host.platform.machine", lambda: "aarch64")
    status, out, _ = inspect(sample_file(), "--engine", "fbgemm", "--json")
    assert (status, codes(out)) == (1, {"QT309"})
    status, out, _ = inspect(sample_file(), "--engine", "qnnpack", "--json")
    assert (status, codes(out)) == (1, {"QT301", "QT305"})
    assert inspect(sample_file(), "--backend", "fbgemm")[0] == 0
    status, out, err = inspect(sample_file(), "--engine", "fbgem")
    assert (status, out) == (2, "")
    assert "did you mean 'fbgemm'" in err


def test_this_machine_is_a_target(inspect, monkeypatch):
    monkeypatch.setattr("qtool.backends.host.platform.machine", lambda: "aarch64")
    status, out, _ = inspect(sample_file(backend="onednn", isa=Isa.VNNI, reduced=frozenset()), "--host", "--json")
    assert status == 1
    assert codes(out) == {"QT309", "QT303"}  # an unknown CPU is one without VNNI
    assert json.loads(out)["target"]["is_asked"]
    assert inspect(sample_file(**ENGINE_LESS), "--host")[0] == 0


@pytest.mark.parametrize("options", [("--isa", "vnni", "--host"), ("--backend", "fbgemm", "--engine", "fbgemm")])
def test_options_that_exclude_each_other(options, inspect):
    status, out, err = inspect(sample_file(), *options)
    assert (status, out) == (2, "")
    assert "ask for one of them" in err


@pytest.mark.parametrize("word", ["QT301", "qt301"])
def test_a_code_is_explained_without_a_file(word, capfd):
    assert run(["inspect", "--explain", word]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.startswith("QT301: Made for another backend\n\nerror\n\nCause. ")


def test_a_code_that_is_not_known(capfd):
    assert run(["inspect", "--explain", "QT999"]) == 2
    assert "finding 'QT999' is not known" in capfd.readouterr().err
