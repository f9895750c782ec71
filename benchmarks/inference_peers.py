"""The same model run by others: float, torch.ao's FX flow on each of its engines, ONNX Runtime."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import qtool
from qtool.lowering.engine_switch import available_engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    Ways = dict[str, Callable[[], object]]


def float_models(model: nn.Module, x: Tensor) -> Ways:
    """Return torch's float model in both memory formats."""
    wide, wide_x = copy.deepcopy(model).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return {"float": lambda: model(x), "float, channels_last": lambda: wide(wide_x)}


def torch_ao(model: nn.Module, x: Tensor) -> Ways:
    """Return models of FX graph mode with each engine's default settings, eager and frozen in TorchScript."""
    ways: Ways = {}
    before = torch.backends.quantized.engine
    for engine in available_engines():
        torch.backends.quantized.engine = engine
        prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(engine), (x,))
        with torch.no_grad():
            prepared(x[:4])
        eager = convert_fx(prepared)
        frozen = torch.jit.freeze(torch.jit.trace(eager, x).eval())
        ways[f"torch.ao {engine}"] = _on(engine, eager, x)
        ways[f"torch.ao {engine}, TorchScript"] = _on(engine, frozen, x)
    torch.backends.quantized.engine = before
    return ways


def _on(engine: str, model: nn.Module, x: Tensor) -> Callable[[], object]:
    """Return a run with torch's global engine set, which their models need."""

    def run() -> object:
        if torch.backends.quantized.engine != engine:
            torch.backends.quantized.engine = engine
        return model(x)

    return run


def onnx_runtime(model: nn.Module, converted: nn.Module, x: Tensor, threads: int) -> Ways:
    """Return ONNX Runtime's float model and its int8 one in QDQ; none where it is not installed."""
    try:
        import onnxruntime  # noqa: PLC0415 - may not be there
    except ImportError:
        return {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3

    def session(path: Path) -> Callable[[], object]:
        made = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {made.get_inputs()[0].name: x.numpy()}
        return lambda: made.run(None, feed)

    with tempfile.TemporaryDirectory() as folder:
        int8, float_ = Path(folder) / "int8.onnx", Path(folder) / "float.onnx"
        qtool.export(converted, int8)
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        example = (torch.cat([x[:1], x[:1]]),)
        torch.onnx.export(model, example, str(float_), dynamo=True, dynamic_shapes=shapes, verbose=False)
        return {"onnxruntime float": session(float_), "onnxruntime int8": session(int8)}
