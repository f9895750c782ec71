"""An exported net in ONNX Runtime, called like a module."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

import qtool

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def missing_packages() -> list[str]:
    """Return which of the packages that exporting and running need are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def exported(converted: object, file: Path) -> Callable[[Tensor], Tensor]:
    """Export a converted model, or the file of one, and return what runs it in ONNX Runtime."""
    import onnxruntime  # noqa: PLC0415 - optional, and slow to import

    qtool.export(converted, file)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (image,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {image.name: x.numpy()})[0])
