"""TorchScript: at most a step per node, torch alone to run it, int8 inside, the same bytes, a stamp."""

import copy
import dataclasses
import io
import subprocess
import sys
import zipfile
from collections import OrderedDict

import pytest
import torch
from torch import nn

import qtool
from qtool.capture.program import Call
from qtool.errors import MismatchError, MissingEngineError, ModelError, UsageError
from qtool.exporters.pt2 import pt2_files
from qtool.exporters.torchscript.model import engine_for
from qtool.exporters.torchscript.verify import torchscript_differences
from qtool.readers.archive import read_archive
from qtool.readers.marks import marks_of
from qtool.readers.qtool_file import read_qtool_file
from qtool.readers.script_marks import script_facts
from qtool.runtime.generated_inputs import calibrated_ranges, generated_inputs
from qtool.runtime.store import to_bytes
from qtool.types import Stage
from tests.exporters.together import ALL, converted_pattern
from tests.exporters.torchscript.scripts import files_of, loaded, saved, script_of

BARE = """
import sys, warnings, torch
warnings.simplefilter("ignore")
torch.backends.quantized.engine = sys.argv[4]
loaded = torch.jit.load(sys.argv[1])
assert not [name for name in sys.modules if name.startswith("qtool")]
torch.save(loaded(torch.load(sys.argv[2])), sys.argv[3])
"""

NOT_ON_QNNPACK = {"conv3d", "conv3d_bn_relu", "conv3d_grouped", "conv3d_depthwise", "conv3d_pools", "conv_transpose3d",
                  "upsample_3d"}  # fmt: skip


def differences(converted, engine):
    inputs = generated_inputs(Call.of(converted.exported), converted.stamp.inputs, calibrated_ranges(converted.stamp))
    return torchscript_differences(converted, files_of(converted, engine), engine, inputs)


@pytest.mark.parametrize("engine", ["fbgemm", pytest.param("qnnpack", marks=pytest.mark.slow),
                                    pytest.param("x86", marks=pytest.mark.slow),
                                    pytest.param("onednn", marks=pytest.mark.slow)])  # fmt: skip
@pytest.mark.parametrize("name", ["conv2d_chain", "linear_three_dims", "without_batch_1d", "view", "cat"])
def test_every_node_is_at_most_a_step_off(name, engine):
    converted, _ = converted_pattern(name, engine)
    found = differences(converted, engine)
    assert found.keys() == {edge.name for edge in converted.plan.edges}
    assert max(found.values()) <= 1
    assert_marked(converted, engine)


def assert_marked(converted, engine):
    with read_archive(files_of(converted, engine).data) as archive:
        facts = script_facts(archive)
    assert set(facts.marks.nodes) == set(marks_of(converted.stamp).nodes)
    assert facts.num_unmarked == 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "x86", "onednn"])
@pytest.mark.parametrize("name", ALL)
def test_every_pattern_on_every_engine(name, engine):
    if engine == "qnnpack" and name in NOT_ON_QNNPACK:
        with pytest.raises(MismatchError, match="over three dimensions, whose packed weights torch cannot save"):
            files_of(converted_pattern(name, engine)[0])
        return
    converted, _ = converted_pattern(name, engine)
    assert max(differences(converted, engine).values(), default=0) <= 1
    assert_marked(converted, engine)


def test_a_difference_is_seen():
    converted, x = converted_pattern("conv2d_chain", "fbgemm")
    changed = copy.deepcopy(converted)
    changed.exported.state_dict["2.int8.weight"].neg_()
    found = torchscript_differences(converted, files_of(changed), "fbgemm", (x,))
    assert found["2"] > 1
    assert max(steps for edge, steps in found.items() if edge != "2") <= 1


@pytest.mark.parametrize("engine", ["fbgemm", pytest.param("qnnpack", marks=pytest.mark.slow)])
def test_torch_alone_runs_it_with_any_batch(tmp_path, engine):
    converted, x = converted_pattern("conv2d_bn_relu6", engine)
    qtool.export(converted, tmp_path / "int8.pt", "torchscript")
    torch.save(x[:3], tmp_path / "x")
    paths = [str(tmp_path / name) for name in ("int8.pt", "x", "y")]
    subprocess.run([sys.executable, "-c", BARE, *paths, engine], check=True, cwd=tmp_path)
    (step,) = {n.output.scale_max for n in converted.stamp.int8_nodes()}
    assert (torch.load(tmp_path / "y") - converted(x[:3])).abs().max() <= step * 1.001


def test_the_same_model_gives_the_same_bytes_and_stays_as_it_is():
    converted, _ = converted_pattern("conv2d_chain", "fbgemm")
    before = to_bytes(converted)
    assert files_of(converted) == script_of("conv2d_chain")
    assert to_bytes(converted) == before


def test_nothing_in_it_tells_of_this_machine():
    with zipfile.ZipFile(io.BytesIO(script_of("conv2d_chain").data)) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"site-packages" not in content
    assert b"/qtool/" not in content


def test_inspect_says_that_it_is_exported_and_whole():
    report = qtool.inspect(script_of("conv2d_chain").data)
    assert (report.outcome, report.kind, report.content) == ("ok", "torchscript", "verified")
    assert report.stamp.stage is Stage.EXPORTED
    assert not report.is_recovered


def test_torch_hands_out_the_stamp():
    files = {"qtool/stamp.json": ""}
    loaded(script_of("conv2d_chain"), _extra_files=files)
    assert b'"stage":"exported"' in files["qtool/stamp.json"]


def test_weights_are_int8_and_a_quarter_of_the_float_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 128, 3), nn.ReLU(), nn.Conv2d(128, 256, 3)).eval()
    prepared = qtool.prepare(model, torch.randn(2, 64, 8, 8), {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [torch.randn(2, 64, 8, 8)])
    num_float = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert len(files_of(qtool.convert(prepared)).data) <= 0.30 * num_float


def test_case_55_a_weight_that_two_calls_share_is_stored_once():
    with zipfile.ZipFile(io.BytesIO(script_of("called_twice").data)) as archive:
        sizes = [archive.getinfo(name).file_size for name in archive.namelist() if "/data/" in name]
    assert sizes.count(4 * 4 * 9) == 1


def test_case_58_saved_again_and_traced_it_keeps_its_size():
    files, x = script_of("called_twice"), converted_pattern("called_twice", "fbgemm")[1]
    sizes = []
    for engine in ("qnnpack", "fbgemm", "fbgemm"):
        module = loaded(type(files)(saved(loaded(files, engine))), engine)
        sizes.append(_num_data_bytes(saved(module)))
    assert set(sizes) == {_num_data_bytes(files.data)}
    assert module(x).shape == converted_pattern("called_twice", "fbgemm")[0](x).shape


def _num_data_bytes(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sum(archive.getinfo(name).file_size for name in archive.namelist() if "/data/" in name)


def test_a_name_of_any_characters_is_kept():
    torch.manual_seed(0)
    name = "a é%{層}$1"
    model = nn.Sequential(OrderedDict({name: nn.Linear(4, 4)}))
    prepared = qtool.prepare(model, torch.randn(3, 4), {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [torch.randn(3, 4)])
    converted = qtool.convert(prepared)
    assert [node.name for node in converted.stamp.int8_nodes()] == [name]
    report = qtool.inspect(saved(loaded(files_of(converted))))
    assert report.is_recovered
    assert [node.name for node in report.int8_nodes()] == [name]
    assert [mark.name for mark in read_qtool_file(resaved(pt2_files(converted).data)).graph.marks.nodes] == [name]


def resaved(data):
    buffer = io.BytesIO()
    torch.export.save(torch.export.load(io.BytesIO(data)), buffer)
    return buffer.getvalue()


class _Dict(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, inputs, pair):
        y = self.a(inputs["x"] + pair[0])
        return {"y é": y, "z": pair[1] + 1}, [y, y], (y,)


def test_nested_inputs_and_outputs():
    torch.manual_seed(0)
    example = ({"x": torch.randn(3, 4)}, (torch.randn(3, 4), torch.randn(3, 4)))
    prepared = qtool.prepare(_Dict(), example, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [example])
    converted = qtool.convert(prepared)
    found, expected = loaded(files_of(converted))(*example), converted(*example)
    assert found[0].keys() == expected[0].keys()
    for one, other in zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert torch.allclose(one, other, atol=0.1)


class _Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        return {"y": self.a(x), "z": (x, x)}


def test_what_torchscript_has_no_type_for_is_named():
    prepared = qtool.prepare(_Uneven(), torch.randn(3, 4), {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [torch.randn(3, 4)])
    with pytest.raises(ModelError, match=r"no type for a dict of Tensor, Tuple\[Tensor, Tensor\]"):
        files_of(qtool.convert(prepared))


def test_engines():
    stamp = converted_pattern("conv2d_chain", "onnxruntime")[0].stamp
    with pytest.raises(UsageError, match=r"'onnxruntime' runs in .*, and TorchScript packs weights .*--engine"):
        engine_for(stamp, None)
    assert engine_for(stamp, "qnnpack") == "qnnpack"
    with pytest.raises(UsageError, match="did you mean 'qnnpack'"):
        engine_for(stamp, "qnpack")


def test_of_several_backends_the_first_that_is_here_is_taken(monkeypatch):
    stamp = converted_pattern("conv2d_chain", "fbgemm")[0].stamp
    several = dataclasses.replace(stamp, backends=("onnxruntime", "fbgemm", "qnnpack"))
    assert engine_for(several, None) == "fbgemm"
    monkeypatch.setattr("qtool.exporters.torchscript.model.available_engines", lambda: ("qnnpack",))
    assert engine_for(several, None) == "qnnpack"


def test_an_engine_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("qtool.lowering.engine_switch.available_engines", lambda: ("qnnpack",))
    with pytest.raises(MissingEngineError, match="'fbgemm' is not available here"):
        engine_for(converted_pattern("conv2d_chain", "fbgemm")[0].stamp, None)


def test_case_01_an_engine_that_would_saturate_is_refused():
    stamp = converted_pattern("conv2d_chain", "qnnpack")[0].stamp
    with pytest.raises(MismatchError, match=r"made for qnnpack, isa any: on fbgemm 3 nodes can saturate, first '0'"):
        engine_for(stamp, "fbgemm")


def test_int8_activations_are_refused():
    with pytest.raises(MismatchError, match="activations are int8"):
        files_of(converted_pattern("conv2d_chain", "xnnpack")[0], "qnnpack")


def test_torchs_engine_is_left_as_it_was():
    before = torch.backends.quantized.engine
    files_of(converted_pattern("conv2d_bn_relu6", "qnnpack")[0])
    assert torch.backends.quantized.engine == before
