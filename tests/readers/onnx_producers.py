"""A model with one layer of each kind, quantized by ONNX Runtime in every form that it knows."""

from __future__ import annotations

import logging

import numpy as np
import onnx
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from tests.readers.onnx_models import model_of

TYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8, "s16": QuantType.QInt16, "s4": QuantType.QInt4}
FORMS = {"qdq": QuantFormat.QDQ, "qoperator": QuantFormat.QOperator}


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "wt": (8, 6, 2, 2), "wl": (6, 10), "bl": (10,)}
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**found, "wg": found["wl"].T[:4].repeat(2, 1)[:, :10].copy(), "six": np.float32(6), "no": np.float32(0)}


def float_model():
    """conv + relu, depthwise conv + relu6, add, max_pool, conv_transpose, sigmoid, mean, matmul + bias, gemm."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="conv", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], name="relu"),
        node("Conv", ["r1", "w2"], ["c2"], name="depthwise", group=8, pads=[1] * 4),
        node("Clip", ["c2", "no", "six"], ["r2"], name="relu6"),
        node("Add", ["r1", "r2"], ["a"], name="add"),
        node("MaxPool", ["a"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", ["m", "wt"], ["t"], name="transposed", strides=[2, 2]),
        node("Sigmoid", ["t"], ["s"], name="sigmoid"),
        node("GlobalAveragePool", ["s"], ["g"], name="mean"),
        node("Flatten", ["g"], ["f"], name="flatten"),
        node("MatMul", ["f", "wl"], ["p"], name="matmul"),
        node("Add", ["p", "bl"], ["q"], name="plus"),
        node("Gemm", ["q", "wg"], ["y"], name="gemm", transB=1),
    ]
    proto = onnx.load_from_string(model_of(nodes, arrays()))
    for value, shape in ((proto.graph.input[0], ["n", 3, 8, 8]), (proto.graph.output[0], ["n", 4])):
        value.CopyFrom(helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, shape))
    return proto


class _Batches(CalibrationDataReader):
    def __init__(self):
        rng = np.random.default_rng(1)
        self.batches = [rng.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(2)]

    def get_next(self):
        return {"x": self.batches.pop()} if self.batches else None


def static(folder, form, *, activations="u8", weights="s8", **options):
    """Path of the model, quantized with ranges from data."""
    quiet = logging.getLogger()
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # it advises to run its own preprocessing first
    types = {"activation_type": TYPES[activations], "weight_type": TYPES[weights]}
    path = folder / f"{form}.onnx"
    quantize_static(float_model(), str(path), _Batches(), quant_format=FORMS[form], **types, **options)
    quiet.setLevel(level)
    return path


def dynamic(folder, **options):
    """Path of the model, quantized with ranges that are worked out while it runs."""
    path = folder / "dynamic.onnx"
    quantize_dynamic(float_model(), str(path), weight_type=QuantType.QInt8, **options)
    return path


def four_bits(folder, *, is_symmetric):
    """Path of a product whose weight is in blocks of 32 codes of 4 bits."""
    weight = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    proto = onnx.load_from_string(model_of([helper.make_node("MatMul", ["x", "w"], ["y"], name="m")], {"w": weight}))
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, is_symmetric=is_symmetric)
    quantizer.process()
    path = folder / "four_bits.onnx"
    onnx.save(quantizer.model.model, path)
    return path
