"""`qtool export`: its files, streams, messages and exit statuses."""

import json
import sys

import pytest

from qtool.cli.main import run
from qtool.errors import FileFormatError
from qtool.types import Isa
from qtool.workflows import export as export_workflow
from qtool.workflows.load import load
from qtool.workflows.save import save
from tests.cli.process import call, names_in
from tests.exporters.onnx.exported import exported_pattern
from tests.exporters.together import converted_pattern, prepared_pattern


@pytest.fixture
def folder(tmp_path):
    """A folder with a prepared and a converted file."""
    save(prepared_pattern("conv2d_bn_relu6", "onnxruntime", Isa.ANY)[0], tmp_path / "prepared.pt2")
    save(converted_pattern("conv2d_bn_relu6")[0], tmp_path / "int8.pt2")
    return tmp_path


def test_verified_and_written(folder, capfd):
    assert run(["export", str(folder / "int8.pt2"), "-o", str(folder / "a.onnx"), "--verify"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0].split() == ["node", "optimized", "off", "optimized", "on"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["input", "0"]
    assert "a.onnx: onnx, " in err
    assert (folder / "a.onnx").read_bytes() == exported_pattern("conv2d_bn_relu6").data


def test_streams_carry_the_same_bytes(folder):
    result = call(["export", "-", "-o", "-"], input=(folder / "int8.pt2").read_bytes())
    assert result.returncode == 0, result.stderr
    assert result.stdout == exported_pattern("conv2d_bn_relu6").data


def test_json(folder, capfd):
    assert (
        run(["export", str(folder / "int8.pt2"), "--format", "pt2", "-o", str(folder / "p"), "--verify", "--json"]) == 0
    )
    found = json.loads(capfd.readouterr().out)
    assert found["bytes"] == (folder / "p").stat().st_size
    assert (found["format"], found["differences"]) == ("pt2", {"bits": {"output": 0}})


@pytest.mark.parametrize("wanted", ["onnx", "pt2", "torchscript"])
def test_what_computes_something_else_is_not_written(folder, monkeypatch, capfd, wanted):
    limit = {"onnx": 1, "pt2": 0, "torchscript": 1}[wanted]
    for found, status in ((limit, 0), (limit + 1, 1)):
        monkeypatch.setattr(export_workflow, "differences", lambda *_, found=found, **__: {"on": {"0": found}})
        engine = ["--engine", "qnnpack"] if wanted == "torchscript" else []
        output = folder / f"{status}"
        assert (
            run(["export", str(folder / "int8.pt2"), "--format", wanted, "-o", str(output), "--verify", *engine])
            == status
        )
        assert output.exists() == (status == 0)
    assert "nothing was written" in capfd.readouterr().err


def test_torchscript(folder, capfd):
    command = ["export", str(folder / "int8.pt2"), "--format", "torchscript", "-o", str(folder / "a.pt")]
    assert run(command) == 2
    assert "'onnxruntime' runs in onnxruntime, and TorchScript packs weights" in capfd.readouterr().err
    assert run([*command, "--engine", "qnpack"]) == 2
    assert "did you mean 'qnnpack'" in capfd.readouterr().err
    assert not (folder / "a.pt").exists()
    assert run([*command, "--engine", "qnnpack", "--verify"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0].split() == ["node", "steps"]
    assert "a.pt: torchscript, " in err
    assert run(["inspect", str(folder / "a.pt")]) == 0
    assert names_in(folder).count("a.pt") == 1


def test_an_engine_is_for_torchscript_alone(folder, capfd):
    assert run(["export", str(folder / "int8.pt2"), "-o", str(folder / "a.onnx"), "--engine", "qnnpack"]) == 2
    assert "--engine qnnpack is for TorchScript; onnx files hold no packed weights" in capfd.readouterr().err


def test_case_65_the_opset_that_is_needed_is_named(folder, capfd):
    assert run(["export", str(folder / "int8.pt2"), "-o", str(folder / "a.onnx"), "--opset", "11"]) == 2
    assert "need opset 13" in capfd.readouterr().err


def test_a_prepared_file_must_be_converted_first(folder, capfd):
    assert run(["export", str(folder / "prepared.pt2"), "-o", str(folder / "a.onnx")]) == 2
    assert "convert it first" in capfd.readouterr().err


def test_a_missing_package_ends_with_status_4(folder, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert run(["export", str(folder / "int8.pt2"), "-o", str(folder / "a.onnx"), "--verify"]) == 4
    assert "python -m pip install onnxruntime" in capfd.readouterr().err


def test_case_66_a_stream_cannot_hold_two_files(folder, monkeypatch, capfd):
    monkeypatch.setattr("qtool.exporters.onnx.container.EXTERNAL_ABOVE_BYTES", 100)
    source = str(folder / "int8.pt2")
    assert run(["export", source, "-o", "-"]) == 3
    assert "name a file" in capfd.readouterr().err
    assert run(["export", source, "-o", str(folder / "a.onnx"), "--verify"]) == 0
    assert "of weights in" in capfd.readouterr().err
    assert {"a.onnx", "a.onnx.data"} <= set(names_in(folder))


def test_an_onnx_file_is_named_by_all_that_cannot_read_it(folder, capfd):
    (folder / "a.bin").write_bytes(exported_pattern("conv2d_bn_relu6").data)
    assert run(["inspect", str(folder / "a.bin")]) == 0
    assert "exported, by qtool" in capfd.readouterr().out
    for command in (["convert", "-o", str(folder / "x")], ["export", "-o", str(folder / "x")]):
        assert run([*command, str(folder / "a.bin")]) == 3
        message = capfd.readouterr().err
        assert (
            "a.bin: an ONNX file, which only `qtool inspect` reads; its stamp is the JSON under 'qtool.stamp'"
            in message
        )
        assert "Traceback" not in message
    with pytest.raises(FileFormatError, match="an ONNX file, which only `qtool inspect` reads"):
        load(folder / "a.bin")


def test_an_exported_file_is_described_and_not_converted_again(folder, capfd):
    plain = str(folder / "plain.pt2")
    assert run(["export", str(folder / "int8.pt2"), "--format", "pt2", "-o", plain]) == 0
    assert run(["inspect", plain]) == 0
    assert "exported, by qtool" in capfd.readouterr().out
    for command in (["convert"], ["export"]):
        assert run([*command, plain, "-o", str(folder / "x")]) == 2
        assert "is exported already" in capfd.readouterr().err
