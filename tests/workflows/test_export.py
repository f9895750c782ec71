"""What export takes, and what it says of everything else."""

import io
import sys

import pytest

import qtool
from qtool.errors import MissingDependencyError, UsageError
from qtool.exporters.formats import Format
from qtool.types import Isa
from qtool.workflows.export import target_note
from tests.exporters.onnx.exported import exported_pattern
from tests.exporters.together import converted_pattern, prepared_pattern


def test_a_path_gives_the_same_as_the_model(tmp_path):
    converted, _ = converted_pattern("conv2d_bn_relu6")
    qtool.save(converted, tmp_path / "int8.pt2")
    qtool.export(str(tmp_path / "int8.pt2"), tmp_path / "int8.onnx")
    assert (tmp_path / "int8.onnx").read_bytes() == exported_pattern("conv2d_bn_relu6").data


def test_an_open_file_is_written_to():
    buffer = io.BytesIO()
    qtool.export(converted_pattern("conv2d_bn_relu6")[0], buffer, "pt2")
    assert qtool.inspect(buffer.getvalue()).outcome == "ok"


@pytest.mark.parametrize("as_file", [False, True])
def test_a_prepared_model_must_be_converted_first(tmp_path, as_file):
    model, _ = prepared_pattern("conv2d_bn_relu6", "onnxruntime", Isa.ANY)
    if as_file:
        qtool.save(model, tmp_path / "prepared.pt2")
        model = tmp_path / "prepared.pt2"
    with pytest.raises(UsageError, match="is prepared, and export takes a converted model: convert it first"):
        qtool.export(model, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((object(), "x.onnx"), {}, "cannot export a object"),
        (("x.pt2", "x.onnx", "onxx"), {}, "format 'onxx' is not known; did you mean 'onnx'"),
        (("x.pt2", "x.pt2", "pt2"), {"engine": "fbgemm"}, "--engine fbgemm is for TorchScript"),
        (("x.pt2", "x.pt", "torchscript"), {"engine": 3}, "engine 3 is a int"),
        (("x.pt2", "x.pt2", "pt2"), {"opset": 20}, "--opset 20 is for ONNX files"),
        (("x.pt2", "x.onnx"), {"opset": 12}, "opset 12 is too old: per-channel weights need opset 13"),
        (("x.pt2", "x.onnx"), {"opset": "18"}, "opset '18' is a str; give a whole number, 13 to 23"),
        (("x.pt2", "x.onnx"), {"opset": 18.0}, "opset 18.0 is a float"),
        (("x.pt2", "x.onnx"), {"opset": True}, "opset True is a bool"),
        (("x.pt2", "x.onnx", 20), {}, "format 20 is a int; use one of the words onnx, pt2, torchscript"),
        (("x.pt2", "x.onnx", None), {}, "format None is a NoneType"),
        (("x.pt2", 3), {}, "cannot save to a int"),
        (("x.pt2", None), {}, "cannot save to a NoneType"),
        (("x.pt2", "x.onnx"), {"external_above_bytes": "1"}, "external_above_bytes '1' is not a number of bytes"),
        (("x.pt2", "x.onnx"), {"external_above_bytes": -1}, "external_above_bytes -1 is not a number of bytes"),
        ((None, "x.onnx"), {}, "cannot export a NoneType"),
        (("x.pt2", "x.onnx"), {"opset": 99}, "opset 99 is too new"),
        (("missing.pt2", "x.onnx"), {}, "cannot read 'missing.pt2'"),
        (("x.pt2", "no/folder/x.onnx"), {}, "there is no folder 'no/folder'"),
    ],
)
def test_wrong_arguments(arguments, settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        qtool.export(*arguments, **settings)


def test_a_text_file_is_refused():
    with pytest.raises(UsageError, match="open for writing in mode 'wb'"):
        qtool.export(converted_pattern("conv2d_bn_relu6")[0], io.StringIO(), "pt2")


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingDependencyError, match=r"needs onnxscript, .*: python -m pip install onnxscript"):
        qtool.export(converted_pattern("conv2d_bn_relu6")[0], "x.onnx")


def test_a_note_says_where_onnx_runtime_would_saturate():
    full, reduced, own = (
        converted_pattern("conv2d_bn_relu6", backend)[0].stamp for backend in ("qnnpack", "fbgemm", "onnxruntime")
    )
    assert "saturates on an x86 CPU without VNNI at 1 nodes, first '0'" in target_note(full, Format.ONNX)
    assert target_note(reduced, Format.ONNX).startswith("note: made for fbgemm, isa any")
    assert "saturates" not in target_note(reduced, Format.ONNX)
    assert target_note(own, Format.ONNX) is None
    assert target_note(full, Format.PT2) is None
