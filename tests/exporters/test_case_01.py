"""Case 1: a file says what it was made for, in every format, also after others have loaded and saved it.

Case 6: so does an ONNX file that would be wrong on a CPU without VNNI.
"""

import copy
import io
import json
import warnings

import onnx
import pytest
import torch

import qtool
from qtool.cli.main import run
from qtool.errors import MismatchError
from qtool.exporters.formats import Format
from qtool.inspection.codes import Severity
from qtool.types import Isa
from qtool.workflows.export import exported_files
from tests.exporters.together import converted_pattern
from tests.exporters.torchscript.scripts import loaded, saved
from tests.patterns import make_pattern

FORMATS = ("pt2", "torchscript", "onnx")


def again(name, files):
    """What others make of a file: the program loaded and saved, the stamp of the file left behind."""
    if name == "torchscript":
        return saved(loaded(files, "qnnpack"))
    buffer = io.BytesIO()
    if name == "pt2":
        torch.export.save(torch.export.load(io.BytesIO(files.data)), buffer)
        return buffer.getvalue()
    proto = onnx.load_model_from_string(files.data)
    del proto.metadata_props[:]
    return proto.SerializeToString()


@pytest.fixture(scope="module")
def made_for_qnnpack():
    converted, _ = converted_pattern("conv2d_chain", "qnnpack")
    files = {name: exported_files(converted, Format(name), None) for name in FORMATS}
    return {name: (files[name].data, again(name, files[name])) for name in FORMATS}


@pytest.mark.parametrize("lost", [False, True], ids=["as exported", "saved again"])
@pytest.mark.parametrize("name", FORMATS)
def test_case_01_the_nodes_that_disagree_are_named(made_for_qnnpack, name, lost):
    data = made_for_qnnpack[name][lost]
    report = qtool.inspect(data, backend="fbgemm")
    assert report.is_recovered is lost
    assert report.outcome == "findings"
    assert [finding.node for finding in report.findings if finding.code == "QT301"] == ["0", "2", "4"]
    assert {finding.node for finding in report.findings if finding.code == "QT303"} == {"0", "2", "4"}
    assert ("QT208" in {finding.code for finding in report.findings}) is lost


@pytest.mark.parametrize("lost", [False, True], ids=["as exported", "saved again"])
@pytest.mark.parametrize("name", FORMATS)
def test_case_01_for_its_own_target_nothing_is_wrong(made_for_qnnpack, name, lost):
    report = qtool.inspect(made_for_qnnpack[name][lost])
    assert report.stamp.backends == ("qnnpack",)
    assert report.count(Severity.ERROR) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_case_01_the_command_says_where_it_knows_it_from(made_for_qnnpack, name, tmp_path, capfd):
    path = tmp_path / "file"
    path.write_bytes(made_for_qnnpack[name][1])
    assert run(["inspect", str(path)]) == 0
    out = capfd.readouterr().out
    assert "exported, from node stamps" in out
    assert "from node stamps" in out
    assert "3 of 3 nodes" in out
    assert run(["inspect", str(path), "--backend", "fbgemm", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["is_recovered"] is True


@pytest.mark.parametrize("name", FORMATS)
def test_case_01_a_file_without_any_stamp_is_unknown_and_says_what_can_be_derived(name):
    report = qtool.inspect(foreign(name))
    assert report.outcome == "unknown"
    finding, *others = report.findings
    assert finding.code == "QT201"
    assert {other.code for other in others} <= {"QT407"}  # its weights are all 1
    assert "1 convolutions and linears with int8 weights" in finding.message


def foreign(name):
    """An int8 model that qtool did not make."""

    class Int8(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("codes", torch.ones(4, 4, dtype=torch.int8))

        def forward(self, x):
            return torch.nn.functional.linear(x, self.codes.to(torch.float32) * 0.1)

    if name == "pt2":
        buffer = io.BytesIO()
        program = torch.export.export(Int8(), (torch.randn(2, 4),))
        program.example_inputs = None
        torch.export.save(program, buffer)
        return buffer.getvalue()
    if name == "torchscript":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            linear = torch.ao.nn.quantized.Linear(4, 4)  # whose weights are whatever lay in memory
            linear.set_weight_bias(torch.quantize_per_tensor(torch.ones(4, 4), 1.0, 0, torch.qint8), None)
            return saved(torch.jit.script(linear))
    weight = onnx.numpy_helper.from_array(Int8().codes.numpy(), "w")
    node = onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [2, 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [2, 4])
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], [weight])).SerializeToString()


@pytest.mark.parametrize(("name", "words"), [("qnnpack", "targets"), ("conv2d_chain", "scales, first at '0'")])
def test_case_01_a_state_dict_of_another_model_is_refused(name, words):
    converted, x = converted_pattern("conv2d_chain", "fbgemm")
    if name == "qnnpack":
        other = converted_pattern("conv2d_chain", "qnnpack")[0]
    else:
        prepared = qtool.prepare(make_pattern("conv2d_chain")[0], x, {"target": {"backend": "fbgemm"}})
        qtool.calibrate(prepared, [x * 2])
        other = qtool.convert(prepared)
    before = {key: value.clone() for key, value in converted.state_dict().items()}
    with pytest.raises(MismatchError, match=f"other .*{words}: a state_dict holds no scales"):
        converted.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[key]) for key, value in converted.state_dict().items())
    assert not converted.load_state_dict(copy.deepcopy(converted).state_dict()).missing_keys


def test_case_01_two_models_in_one_file_are_judged_node_by_node():
    """Wrapped together and exported again: the nodes of both are there, under a name each."""
    models = [converted_pattern("conv2d_bn_relu6", backend)[0] for backend in ("fbgemm", "qnnpack")]

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.models = torch.nn.ModuleList(
                torch.export.load(io.BytesIO(exported_files(m, Format("pt2"), None).data)).module() for m in models
            )

        def forward(self, x):
            return [model(x) for model in self.models]

    x = converted_pattern("conv2d_bn_relu6", "fbgemm")[1]
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Both(), (x,)), buffer)
    report = qtool.inspect(buffer.getvalue(), backend="fbgemm")
    assert report.stamp.backends == ("fbgemm", "qnnpack")
    assert [(node.name, node.backends) for node in report.int8_nodes()] == [("0", ("fbgemm",)), ("0 (2)", ("qnnpack",))]
    assert {f.node for f in report.findings if f.code == "QT301"} == {"0 (2)"}


def test_case_01_layers_that_nobody_speaks_of_are_an_error():
    """An exported model beside an int8 layer of somebody else."""
    converted, x = converted_pattern("conv2d_bn_relu6", "fbgemm")

    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.export.load(io.BytesIO(exported_files(converted, Format("pt2"), None).data)).module()
            self.register_buffer("codes", torch.ones(4, 8, 1, 1, dtype=torch.int8))

        def forward(self, x):
            return torch.conv2d(self.body(x), self.codes.to(torch.float32) * 0.1)

    buffer = io.BytesIO()
    program = torch.export.export(Mixed(), (x,))
    program.example_inputs = None
    torch.export.save(program, buffer)
    report = qtool.inspect(buffer.getvalue())
    assert report.outcome == "findings"
    (finding,) = [each for each in report.findings if each.code == "QT209"]
    assert finding.message == "1 of 2 convolutions and linears with int8 weights"


@pytest.mark.parametrize("lost", [False, True], ids=["as exported", "metadata removed"])
def test_case_06_an_onnx_file_that_saturates_without_vnni_names_its_nodes(lost):
    converted, _ = converted_pattern("conv2d_chain", "onnxruntime", Isa.VNNI)
    files = exported_files(converted, Format("onnx"), None)
    report = qtool.inspect(again("onnx", files) if lost else files.data, isa="no-vnni")
    named = {finding.node for finding in report.findings if finding.code in ("QT303", "QT304")}
    assert named == {"0", "2", "4"}
    reduced = exported_files(converted_pattern("conv2d_chain", "onnxruntime")[0], Format("onnx"), None)
    assert qtool.inspect(reduced.data, isa="no-vnni").outcome == "ok"
