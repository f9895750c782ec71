"""Makes the files of `benchmarks.inspect_files`, which must not import torch itself."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import safetensors.torch
import torch
import torchvision
from torch import nn

import qtool
from benchmarks.inspect_files import FLOAT_WIDTH, LAYERS, WIDTH


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    classifier = torchvision.models.mobilenet_v2(weights=None).eval()
    prepared = calibrated(classifier, torch.randn(2, 3, 224, 224))
    qtool.save(prepared, folder / "mobilenet_v2_prepared.pt2")
    qtool.save(qtool.convert(prepared), folder / "mobilenet_v2_int8.pt2")
    converted = qtool.convert(calibrated(linears(WIDTH), torch.randn(2, WIDTH)))
    qtool.save(converted, folder / "linear_int8.pt2")
    qtool.export(converted, folder / "linear_int8.onnx", format="onnx")
    safetensors.torch.save_file(converted.state_dict(), folder / "linear_int8.safetensors")
    torch.save(linears(FLOAT_WIDTH).state_dict(), folder / "linear.pt")


def linears(width: int) -> nn.Module:
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers).eval()


def calibrated(model: nn.Module, x: torch.Tensor) -> nn.Module:
    prepared = qtool.prepare(model, x, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [x])
    return prepared


if __name__ == "__main__":
    main()
