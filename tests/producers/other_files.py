"""Files of torchao, of safetensors, and of qtool itself."""

from __future__ import annotations

import copy
import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from torch import nn
from torchao import quantization
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.utils import unwrap_tensor_subclass

import qtool
from qtool.readers.facts import FileKind
from tests.producers.producer import (
    CHANNEL,
    DYNAMIC,
    FAKE,
    FLOAT,
    STATIC,
    WEIGHT_ONLY,
    Producer,
    batch,
    net,
    producer,
)
from tests.producers.torch_files import saved

if TYPE_CHECKING:
    from collections.abc import Callable


FIXTURES = Path(__file__).parent / "fixtures"


def torchao_model(config: str) -> nn.Module:
    """Return the model with its linear quantized in place by torchao."""
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.quantize_(model, getattr(quantization, config)())
    return model


def torchao_exported(config: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = unwrap_tensor_subclass(torchao_model(config))
            torch.export.save(torch.export.export(model, (batch(),)), str(path))

    return make


def pt2e(path: Path) -> None:
    """Save what torchao's PT2E makes of the model for x86."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        prepared = prepare_pt2e(torch.export.export(net(), (batch(),)).module(), quantizer)
        prepared(batch())
        torch.export.save(torch.export.export(convert_pt2e(prepared), (batch(),)), str(path))


def tensors(path: Path) -> None:
    safetensors.torch.save_file(net().state_dict(), str(path))


def int8_tensors(path: Path) -> None:
    """Save int8 weights with their scales beside them, as compressed-tensors names them."""
    held = {}
    for name, value in net().state_dict().items():
        if value.ndim < 2:
            held[name] = value
            continue
        scale = value.flatten(1).abs().amax(1) / 127
        codes = (value / scale.reshape(-1, *[1] * (value.ndim - 1))).round().to(torch.int8)
        held |= {name: codes, f"{name}_scale": scale.reshape(-1, 1)}
    safetensors.torch.save_file(held, str(path), metadata={"format": "pt"})


@functools.cache
def prepared() -> nn.Module:
    model = qtool.prepare(net(), batch(), {"target": {"backend": "fbgemm"}})
    qtool.calibrate(model, [batch()])
    return model


@functools.cache
def trained() -> nn.Module:
    """Return the model after one step of training."""
    model = qtool.prepare(net().train(), batch(), {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}})
    qtool.calibrate(model, [batch()])
    model.train()
    model(batch()).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    return model.eval()


def of_qtool(stage: Callable[[], nn.Module]) -> Callable[[Path], None]:
    return lambda path: qtool.save(stage(), path)


def exported(form: str) -> Callable[[Path], None]:
    return lambda path: qtool.export(qtool.convert(copy.deepcopy(prepared())), path, format=form)


def kept(name: str) -> Callable[[Path], object]:
    """Return what copies a file that was made once."""
    return lambda path: path.write_bytes((FIXTURES / name).read_bytes())


CHECKPOINT, PT2, TENSORS = FileKind.CHECKPOINT, FileKind.PT2, FileKind.SAFETENSORS
THREE, INT8 = {FLOAT: 3}, {STATIC: 3}
TORCHAO: tuple[Producer, ...] = (
    producer(
        "torchao: int8 weights, state dict",
        saved(lambda: torchao_model("Int8WeightOnlyConfig").state_dict()),
        CHECKPOINT,
        "torchao",
        {FLOAT: 2, WEIGHT_ONLY: 1},
        CHANNEL,
    ),
    producer(
        "torchao: dynamic int8, state dict",
        saved(lambda: torchao_model("Int8DynamicActivationInt8WeightConfig").state_dict()),
        CHECKPOINT,
        "torchao",
        {FLOAT: 2, DYNAMIC: 1},
        CHANNEL,
    ),
    producer(
        "torchao: int8 weights, exported",
        torchao_exported("Int8WeightOnlyConfig"),
        PT2,
        "torch",
        {FLOAT: 2, WEIGHT_ONLY: 1},
        CHANNEL,
    ),
    producer(
        "torchao: dynamic int8, exported",
        torchao_exported("Int8DynamicActivationInt8WeightConfig"),
        PT2,
        "torch",
        {FLOAT: 2, DYNAMIC: 1},
        CHANNEL,
    ),
    producer("torchao: PT2E for x86, exported", pt2e, PT2, "torch", INT8, CHANNEL),
)
SAFETENSORS: tuple[Producer, ...] = (
    producer("safetensors: float", tensors, TENSORS, "", THREE, quick=True),
    producer("safetensors: int8 with scales", int8_tensors, TENSORS, "", {WEIGHT_ONLY: 3}, CHANNEL, quick=True),
)
QTOOL: tuple[Producer, ...] = (
    producer("qtool: prepared", of_qtool(prepared), PT2, "qtool|torch.export", {FAKE: 3}, CHANNEL),
    producer("qtool: trained", of_qtool(trained), PT2, "qtool|torch.export", {FAKE: 3}, CHANNEL),
    producer(
        "qtool: converted",
        of_qtool(lambda: qtool.convert(copy.deepcopy(prepared()))),
        PT2,
        "qtool|torch.export",
        INT8,
        CHANNEL,
    ),
    producer("qtool: exported as ONNX", exported("onnx"), FileKind.ONNX, "qtool", INT8, CHANNEL),
    producer("qtool: exported as pt2", exported("pt2"), PT2, "qtool|torch.export", INT8, CHANNEL),
    producer(
        "qtool: exported as TorchScript", exported("torchscript"), FileKind.TORCHSCRIPT, "qtool|torch", INT8, CHANNEL
    ),
)
EXECUTORCH: tuple[Producer, ...] = (
    producer("executorch: float", kept("float.pte"), FileKind.EXECUTORCH, "ExecuTorch", THREE, quick=True),
    producer("executorch: int8", kept("quantized.pte"), FileKind.EXECUTORCH, "ExecuTorch", INT8, CHANNEL, quick=True),
    producer("executorch: XNNPACK in int8", kept("xnnpack.pte"), FileKind.EXECUTORCH, "ExecuTorch", {}, quick=True),
)
PRODUCERS = TORCHAO + SAFETENSORS + QTOOL + EXECUTORCH
