"""Files of torch.onnx and of onnxruntime's quantizer."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import onnx
import torch
from onnxruntime import quantization as ort

from qtool.readers.facts import FileKind
from tests.producers.producer import (
    CHANNEL,
    DYNAMIC,
    FLOAT,
    STATIC,
    TENSOR,
    Producer,
    batch,
    net,
    producer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np


def exported(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net(), (batch(),), str(path), dynamo=False, input_names=["x"], opset_version=17)


def with_data_beside(path: Path) -> None:
    exported(path)
    model = onnx.load(str(path))
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)


class Batches(ort.CalibrationDataReader):
    """Two batches of noise."""

    def __init__(self) -> None:
        self.left: Iterator[dict[str, np.ndarray]] = iter([{"x": batch().numpy()}] * 2)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


def static(
    form: ort.QuantFormat, *, per_channel: bool, activation: ort.QuantType = ort.QuantType.QUInt8
) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        source = path.with_name("float.onnx")
        exported(source)
        with quiet():
            ort.quantize_static(
                source, path, Batches(), quant_format=form, per_channel=per_channel,
                weight_type=ort.QuantType.QInt8, activation_type=activation,
            )  # fmt: skip

    return make


def dynamic(path: Path) -> None:
    source = path.with_name("float.onnx")
    exported(source)
    with quiet():
        ort.quantize_dynamic(source, path, weight_type=ort.QuantType.QInt8)


class quiet(warnings.catch_warnings):
    """The quantizer logs and warns of what is no fault here."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)

    def __exit__(self, *error: object) -> None:
        logging.disable(logging.NOTSET)
        super().__exit__(*error)


ONNX, ORT = FileKind.ONNX, "onnx.quantize|onnxruntime"
QDQ, QOPERATOR = ort.QuantFormat.QDQ, ort.QuantFormat.QOperator
PRODUCERS: tuple[Producer, ...] = (
    producer("torch.onnx: float", exported, ONNX, "pytorch", {FLOAT: 3}, quick=True),
    producer("torch.onnx: float, weights beside it", with_data_beside, ONNX, "pytorch", {FLOAT: 3}),
    producer(
        "onnxruntime: QDQ, per channel", static(QDQ, per_channel=True), ONNX, ORT, {STATIC: 3}, CHANNEL, quick=True
    ),
    producer("onnxruntime: QDQ, per tensor", static(QDQ, per_channel=False), ONNX, ORT, {STATIC: 3}, TENSOR),
    producer(
        "onnxruntime: QDQ, signed",
        static(QDQ, per_channel=True, activation=ort.QuantType.QInt8),
        ONNX,
        ORT,
        {STATIC: 3},
        CHANNEL,
    ),
    producer("onnxruntime: QOperator", static(QOPERATOR, per_channel=False), ONNX, ORT, {STATIC: 3}, TENSOR),
    producer(
        "onnxruntime: QOperator, per channel", static(QOPERATOR, per_channel=True), ONNX, ORT, {STATIC: 3}, CHANNEL
    ),
    producer("onnxruntime: dynamic", dynamic, ONNX, ORT, {DYNAMIC: 3}, TENSOR),
)
