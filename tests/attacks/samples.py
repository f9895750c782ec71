"""One small valid file of each format, built once: what the mutations begin with."""

from __future__ import annotations

import io
import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.ao import quantization as ao

from tests.attacks import onnx_models, safetensors_files
from tests.readers.sample_files import file_bytes, sample_file, zip_bytes
from tests.stamp.fixtures.make import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(__file__).parents[1] / "producers" / "fixtures"


def _small(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


@cache
def quantized_module() -> torch.nn.Module:
    """Return a converted module of torch.ao: a convolution with a ReLU, and a linear."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = "qnnpack"
        body = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 2))
        model = torch.nn.Sequential(ao.QuantStub(), body, ao.DeQuantStub()).eval()
        ao.fuse_modules(model, [["1.0", "1.1"]], inplace=True)
        model.qconfig = ao.get_default_qconfig("qnnpack")
        prepared = ao.prepare(model)
        prepared(torch.randn(4, 2, 2, 2))
        return ao.convert(prepared)


def saved(value: object, *, zipped: bool = True) -> bytes:
    """Return what torch.save writes."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def scripted() -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(quantized_module()), out)
    return out.getvalue()


def qdq_model() -> bytes:
    """Return an ONNX model of a quantized convolution in both forms, with an If around one."""
    scale, zero = onnx_models.scales(0.5), b"\3"
    scales = onnx_models.scales(0.5, 0.25, 0.125, 1.0)
    node, field, tensor = onnx_models.node, onnx_models.field, onnx_models.tensor
    axis = field(5, field(1, "axis") + field(3, 0) + field(20, 2))
    branch = onnx_models.graph(field(1, node("QLinearConv", ("q", "s", "z", "w", "ws", "wz", "s", "z"), ("b",))))
    return onnx_models.model(
        field(1, node("QuantizeLinear", ("x", "s", "z"), ("q",))),
        field(1, node("DequantizeLinear", ("q", "s", "z"), ("d",))),
        field(1, node("DequantizeLinear", ("w", "ws", "wz"), ("wf",), axis)),
        field(1, node("Conv", ("d", "wf"), ("y",))),
        field(1, node("If", ("c",), ("r",), field(5, field(1, "then_branch") + field(6, branch) + field(20, 5)))),
        field(5, tensor("w", (4, 4, 1, 1), onnx_models.INT8, bytes(range(16)))),
        field(5, tensor("ws", (4,), onnx_models.FLOAT, scales)),
        field(5, tensor("wz", (4,), onnx_models.INT8, b"\0" * 4)),
        field(5, tensor("s", (), onnx_models.FLOAT, scale)),
        field(5, tensor("z", (), onnx_models.UINT8, zero)),
        extra=field(14, field(1, "producer") + field(2, "corpus")),
    )


def tensors_file() -> bytes:
    """Return a safetensors file of an int8 weight with its scales, and a float bias."""
    rows = {
        "__metadata__": {"format": "pt"},
        "a.weight": safetensors_files.row("I8", [4, 4], 0, 16),
        "a.weight_scale": safetensors_files.row("F32", [4, 1], 16, 32),
        "a.bias": safetensors_files.row("F32", [4], 32, 48),
    }
    return safetensors_files.file(rows, bytes(range(1, 17)) + np.ones(8, "<f4").tobytes())


def compiled_package() -> bytes:
    """Return an archive as AOTInductor lays it out."""
    entries = {
        "data/aotinductor/model/model.wrapper.so": b"\x7fELF" + b"\0" * 200,
        "data/aotinductor/model/model.wrapper.cpp": b"// code",
        "data/aotinductor/model/model_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
        "archive_format": b"pt2",
        "byteorder": b"little",
    }
    return zip_bytes(entries)


SAMPLES: dict[str, Callable[[], bytes]] = {
    "pt2": sample_file,
    "pt2 without stamp": lambda: file_bytes(None, None),
    "converted by qtool": lambda: _small("format_1_int8.pt2"),
    "prepared by qtool": lambda: _small("format_1_prepared.pt2"),
    "compiled package": compiled_package,
    "checkpoint": lambda: saved(quantized_module().state_dict()),
    "older checkpoint": lambda: saved(quantized_module().state_dict(), zipped=False),
    "whole module": lambda: saved(quantized_module()),
    "pickle": lambda: pickle.dumps({"a": [1, 2.5, "x", None, (True, b"y")], "b": {"c": range(3)}}, protocol=4),
    "TorchScript": scripted,
    "ONNX": qdq_model,
    "safetensors": tensors_file,
    "ExecuTorch": (PROGRAMS / "xnnpack.pte").read_bytes,
    "ExecuTorch in float": (PROGRAMS / "float.pte").read_bytes,
}
"""How each is made, by the name of its format."""


@cache
def sample(name: str) -> bytes:
    """Return the file of a format."""
    return SAMPLES[name]()
