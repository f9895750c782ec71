import json
import warnings

import pytest
import torch
from torch import nn

import qtool
from qtool.readers.any_file import opened_model
from qtool.readers.facts import FileKind
from qtool.readers.marks import NodeMark, encode
from qtool.readers.risks import RiskKind
from qtool.readers.source import BLOCK_BYTES
from tests.readers.sample_files import zip_bytes

FOLDER = "data/aotinductor/model/"
MARK = NodeMark(name="features.0", backends=("fbgemm",), reduce_range=True)
SOURCE = """
    constants_info_[0].name = "fc_weight";
    constants_info_[0].dtype = cached_torch_dtype_int8;
    constants_info_[0].data_size = 320;
    constants_info_[0].shape = {8, 33};
    constants_info_[0].original_fqn = "fc.weight";
    constants_info_[1].name = "scalar";
    constants_info_[1].dtype = cached_torch_dtype_float32;
    constants_info_[1].shape = {};
    constants_info_[2].name = "odd";
    constants_info_[2].dtype = cached_torch_dtype_float32;
    constants_info_[2].shape = {9223372036854775807L, 9223372036854775807L};
"""


def facts(library=b"\x7fELF", source=SOURCE):
    entries = {
        f"{FOLDER}a.wrapper.cpp": source.encode(),
        f"{FOLDER}a.wrapper.so": library,
        f"{FOLDER}a.wrapper_metadata.json": json.dumps({"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": "AVX2"}).encode(),
    }
    with opened_model(zip_bytes(entries)) as model:
        return model.facts


def test_constants_and_target_are_what_the_source_states():
    found = facts()
    assert found.kind is FileKind.AOTI
    assert (found.model.producer, found.model.form) == ("AOTInductor", "compiled for cpu AVX2")
    assert [(each.name, each.dtype, each.shape, each.place) for each in found.model.tensors] == [
        ("fc.weight", "int8", (8, 33), None),
        ("scalar", "float32", (), None),
    ]
    assert found.model.bytes_by_dtype == (("int8", 264), ("float32", 4))
    assert {risk.kind for risk in found.risks} == {RiskKind.COMPILED_CODE}


@pytest.mark.parametrize("start", [0, 100, BLOCK_BYTES - 20, BLOCK_BYTES, 2 * BLOCK_BYTES - 5000])
def test_a_mark_is_found_wherever_it_stands_in_the_library(start):
    library = b"\0" * start + encode(MARK).encode() + b"\0" * 9000
    assert facts(library).graph.marks.nodes == (MARK,)


def test_a_mark_in_source_and_library_counts_once():
    assert facts(encode(MARK).encode(), f'check("{encode(MARK)}");').graph.marks.nodes == (MARK,)


@pytest.mark.slow
def test_a_compiled_export_keeps_its_marks_and_names(tmp_path):
    model, x = nn.Sequential(nn.Linear(32, 8), nn.ReLU()), torch.randn(4, 32)
    prepared = qtool.prepare(model, x, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [x])
    qtool.export(qtool.convert(prepared), tmp_path / "a.pt2", format="pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(tmp_path / "a.pt2")
        program._example_inputs = ((x,), {})
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "b.pt2"))
    with opened_model(tmp_path / "b.pt2") as opened:
        found = opened.facts
    assert [(mark.name, mark.backends) for mark in found.graph.marks.nodes] == [("0", ("fbgemm",))]
    assert ("0.int8.weight", "int8", (8, 32)) in [(each.name, each.dtype, each.shape) for each in found.model.tensors]
