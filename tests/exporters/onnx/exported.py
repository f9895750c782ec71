"""Models exported to ONNX, once for all tests that look at them, and run in ONNX Runtime."""

from __future__ import annotations

import functools

import onnx
import onnxruntime

from qtool.exporters.onnx.container import EXTERNAL_ABOVE_BYTES, to_files
from qtool.exporters.onnx.model import onnx_model
from tests.exporters.together import converted_pattern, converted_together


def to_onnx(converted, **settings):
    return to_files(onnx_model(converted, **settings), None, external_above_bytes=EXTERNAL_ABOVE_BYTES)


@functools.cache
def exported_together(names, backend):
    return to_onnx(converted_together(names, backend)[0])


@functools.cache
def exported_pattern(name, backend="onnxruntime"):
    return to_onnx(converted_pattern(name, backend)[0])


def proto_of(files):
    return onnx.load_model_from_string(files.data)


def ops_of(proto, kind):
    return [node for node in proto.graph.node if node.op_type == kind]


def attributes_of(node):
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def initializers_of(proto):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def session(model, **settings):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    for name, value in settings.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model, *arrays, **settings):
    opened = session(model, **settings)
    return opened.run(None, dict(zip((i.name for i in opened.get_inputs()), arrays, strict=True)))
