"""One file, or two where the weights do not fit."""

import io
import shutil

import onnx
import pytest
import torch
from torch import nn

import qtool
from qtool.errors import ModelError, UsageError
from qtool.exporters.formats import Format
from qtool.exporters.onnx.verify import onnx_differences
from qtool.workflows.export import exported_files
from tests.cli.process import names_in
from tests.exporters.onnx.exported import run
from tests.exporters.onnx.test_model import converted_model

ONE_MB = 1_000_000


@pytest.fixture(scope="module")
def large():
    torch.manual_seed(0)
    x = torch.randn(8, 1024)
    return converted_model(nn.Linear(1024, 1024), x), x


def test_case_66_weights_that_do_not_fit_go_into_a_second_file(large, tmp_path):
    converted, x = large
    qtool.export(converted, tmp_path / "large.onnx", external_above_bytes=ONE_MB)
    assert names_in(tmp_path) == ["large.onnx", "large.onnx.data"]
    proto = onnx.load(tmp_path / "large.onnx", load_external_data=False)
    places = [entry.value for t in proto.graph.initializer for entry in t.external_data if entry.key == "location"]
    assert set(places) == {"large.onnx.data"}
    assert (tmp_path / "large.onnx").stat().st_size < 0.05 * (tmp_path / "large.onnx.data").stat().st_size
    shutil.move(tmp_path, moved := tmp_path.with_name("moved"))
    (found,) = run(str(moved / "large.onnx"), x.numpy())
    step = converted.stamp.nodes[-1].output.scale_max
    assert abs(torch.from_numpy(found) - converted(x)).max() <= 1.001 * step


def test_case_66_two_files_are_verified_too(large, tmp_path):
    converted, x = large
    files = exported_files(converted, Format.ONNX, tmp_path / "a.onnx", external_above_bytes=ONE_MB)
    assert files.external is not None
    found = onnx_differences(converted, files, "a.onnx.data", (x,))
    assert max(max(steps.values()) for steps in found.values()) <= 1


def test_case_66_a_stream_has_no_second_file(large):
    with pytest.raises(ModelError, match=r"has 1\.1 MB of weights and one ONNX file holds 1\.0 MB: name a file"):
        qtool.export(large[0], io.BytesIO(), external_above_bytes=ONE_MB)


def test_case_66_neither_file_is_written_if_one_cannot_be(large, tmp_path):
    (tmp_path / "a.onnx.data").mkdir()
    with pytest.raises(UsageError, match=r"cannot write '.*a\.onnx\.data'"):
        qtool.export(large[0], tmp_path / "a.onnx", external_above_bytes=ONE_MB)
    assert names_in(tmp_path) == ["a.onnx.data"]
