"""Float files of torch, and what its own quantizers make of the model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.ao import quantization as ao
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx

from qtool.readers.facts import FileKind
from tests.producers.producer import (
    CHANNEL,
    DYNAMIC,
    FAKE,
    FLOAT,
    STATIC,
    TENSOR,
    WEIGHT_ONLY,
    Producer,
    batch,
    engine,
    net,
    producer,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENGINES = {"fbgemm": CHANNEL, "x86": CHANNEL, "onednn": CHANNEL, "qnnpack": TENSOR}


def saved(value: Callable[[], object], *, zipped: bool = True) -> Callable[[Path], object]:
    return lambda path: torch.save(value(), path, _use_new_zipfile_serialization=zipped)


def script(model: Callable[[], nn.Module], form: str = "script") -> Callable[[Path], object]:
    """Return what saves a model as TorchScript, in one of its forms."""

    def make(path: Path) -> None:
        made = torch.jit.trace(model(), batch()) if form == "traced" else torch.jit.script(model())
        if form == "frozen":
            made = torch.jit.freeze(made)
        if form == "mobile":
            made._save_for_lite_interpreter(str(path))
        else:
            torch.jit.save(made, str(path))

    return make


def quiet(make: Callable[[Path], object], name: str = "fbgemm") -> Callable[[Path], object]:
    def made(path: Path) -> None:
        with engine(name):
            make(path)

    return made


class Stubbed(nn.Module):
    """The model between a quantize and a dequantize, as torch.ao's eager way wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.body, self.dequant = ao.QuantStub(), net(), ao.DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.body(self.quant(x)))


def eager(name: str) -> nn.Module:
    """Return the model converted in torch.ao's eager way."""
    model = Stubbed().eval()
    ao.fuse_modules(model, [["body.stem", "body.relu"]], inplace=True)
    model.qconfig = ao.get_default_qconfig(name)
    prepared = ao.prepare(model)
    prepared(batch())
    return ao.convert(prepared)


def observed(name: str) -> nn.Module:
    """Return the same as a QAT model, not converted."""
    model = Stubbed().train()
    model.qconfig = ao.get_default_qat_qconfig(name)
    prepared = ao.prepare_qat(model)
    prepared(batch())
    return prepared


def graph_mode(name: str) -> nn.Module:
    prepared = prepare_fx(net(), ao.get_default_qconfig_mapping(name), (batch(),))
    prepared(batch())
    return convert_fx(prepared)


def graph_mode_qat(name: str) -> nn.Module:
    prepared = prepare_qat_fx(net().train(), ao.get_default_qat_qconfig_mapping(name), (batch(),))
    prepared(batch())
    return prepared


def dynamic(dtype: torch.dtype = torch.qint8) -> nn.Module:
    return ao.quantize_dynamic(net(), {nn.Linear}, dtype=dtype)


def lstm() -> nn.Module:
    torch.manual_seed(0)
    return ao.quantize_dynamic(nn.Sequential(nn.LSTM(4, 8)), {nn.LSTM}, dtype=torch.qint8)


def exported(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net(), (batch(),)), str(path))


def compiled(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net(), (batch(),))
        torch._inductor.aoti_compile_and_package(program, package_path=f"{path}.pt2")
    path.with_name(f"{path.name}.pt2").rename(path)


THREE = {FLOAT: 3}
INT8 = {STATIC: 3}
SCRIPT, CHECKPOINT, MODULE = FileKind.TORCHSCRIPT, FileKind.CHECKPOINT, FileKind.MODULE
FLOATS: tuple[Producer, ...] = (
    producer("torch: state dict", saved(lambda: net().state_dict()), CHECKPOINT, "torch", THREE, quick=True),
    producer(
        "torch: older state dict",
        saved(lambda: net().state_dict(), zipped=False),
        CHECKPOINT,
        "torch",
        THREE,
        quick=True,
    ),
    producer(
        "torch: a checkpoint of a training",
        saved(lambda: {"epoch": 3, "model": net().state_dict()}),
        CHECKPOINT,
        "torch",
        THREE,
    ),
    producer("torch: whole module", saved(net), MODULE, "torch", THREE, quick=True),
    producer("torch: older whole module", saved(net, zipped=False), MODULE, "torch", THREE),
    producer("torch: scripted", script(net), SCRIPT, "torch", THREE, quick=True),
    producer("torch: traced", script(net, "traced"), SCRIPT, "torch", THREE),
    producer("torch: frozen", script(net, "frozen"), SCRIPT, "torch", THREE),
    producer("torch: mobile (.ptl)", script(net, "mobile"), SCRIPT, "torch", THREE),
    producer("torch: exported program", exported, FileKind.PT2, "torch", THREE),
    producer("torch: compiled by AOTInductor", compiled, FileKind.AOTI, "AOTInductor", {}),
)
QUANTIZED: tuple[Producer, ...] = (
    *(
        producer(
            f"torch.ao: eager on {name}, state dict",
            quiet(saved(lambda name=name: eager(name).state_dict()), name),
            CHECKPOINT,
            "torch.ao",
            INT8,
            weight,
            quick=name == "qnnpack",
        )
        for name, weight in ENGINES.items()
    ),
    *(
        producer(
            f"torch.ao: eager on {name}, scripted",
            quiet(script(lambda name=name: eager(name)), name),
            SCRIPT,
            "torch",
            INT8,
            weight,
            quick=name == "fbgemm",
        )
        for name, weight in ENGINES.items()
    ),
    *(
        producer(
            f"torch.ao: FX on {name}, state dict",
            quiet(saved(lambda name=name: graph_mode(name).state_dict()), name),
            CHECKPOINT,
            "torch.ao",
            INT8,
            weight,
        )
        for name, weight in ENGINES.items()
    ),
    *(
        producer(
            f"torch.ao: FX on {name}, traced",
            quiet(script(lambda name=name: graph_mode(name), "traced"), name),
            SCRIPT,
            "torch",
            INT8,
            weight,
        )
        for name, weight in ENGINES.items()
    ),
    producer("torch.ao: eager, whole module", quiet(saved(lambda: eager("fbgemm"))), MODULE, "torch.ao", INT8, CHANNEL),
    producer(
        "torch.ao: eager, older form",
        quiet(saved(lambda: eager("fbgemm").state_dict(), zipped=False)),
        CHECKPOINT,
        "torch.ao",
        INT8,
        CHANNEL,
    ),
    producer(
        "torch.ao: eager, traced", quiet(script(lambda: eager("fbgemm"), "traced")), SCRIPT, "torch", INT8, CHANNEL
    ),
    producer(
        "torch.ao: eager, frozen", quiet(script(lambda: eager("fbgemm"), "frozen")), SCRIPT, "torch", INT8, CHANNEL
    ),
    producer(
        "torch.ao: eager, mobile",
        quiet(script(lambda: eager("qnnpack"), "mobile"), "qnnpack"),
        SCRIPT,
        "torch",
        INT8,
        TENSOR,
    ),
    producer(
        "torch.ao: dynamic, state dict",
        quiet(saved(lambda: dynamic().state_dict())),
        CHECKPOINT,
        "torch.ao",
        {FLOAT: 2, DYNAMIC: 1},
        TENSOR,
        quick=True,
    ),
    producer("torch.ao: dynamic, scripted", quiet(script(dynamic)), SCRIPT, "torch", {FLOAT: 2, DYNAMIC: 1}, TENSOR),
    producer(
        "torch.ao: dynamic, whole module", quiet(saved(dynamic)), MODULE, "torch.ao", {FLOAT: 2, DYNAMIC: 1}, TENSOR
    ),
    producer(
        "torch.ao: dynamic in float16, state dict",
        quiet(saved(lambda: dynamic(torch.float16).state_dict())),
        CHECKPOINT,
        "torch.ao",
        {FLOAT: 2, WEIGHT_ONLY: 1},
        ("float16", "tensor"),
    ),
    producer(
        "torch.ao: dynamic in float16, scripted",
        quiet(script(lambda: dynamic(torch.float16))),
        SCRIPT,
        "torch",
        {FLOAT: 2, WEIGHT_ONLY: 1},
        ("float16", "tensor"),
    ),
    producer(
        "torch.ao: QAT, state dict",
        quiet(saved(lambda: observed("fbgemm").state_dict())),
        CHECKPOINT,
        "torch.ao",
        {FAKE: 3},
        ("float32", "tensor"),
        quick=True,
    ),
    producer(
        "torch.ao: FX QAT, state dict",
        quiet(saved(lambda: graph_mode_qat("fbgemm").state_dict())),
        CHECKPOINT,
        "torch.ao",
        {FAKE: 3},
    ),
)
PRODUCERS = FLOATS + QUANTIZED
