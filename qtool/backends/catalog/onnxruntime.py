"""onnxruntime: ONNX models with quantize/dequantize pairs, on ONNX Runtime's CPU provider.

Its u8 x s8 matrix kernels add pairs in int16 without VNNI; the depthwise kernel widens first. QuantizeLinear clamps
to its dtype, not to a range inside it, so codes kept in 0..127 need a Clip behind it. The session option
`session.x64quantprecision` makes it use a slower exact kernel instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qtool.backends.catalog.aten_ops import CHANNEL_FIRST, CLAMPS
from qtool.backends.record import Backend, KernelIsa, OpRule, Saturates, Support
from qtool.types import Op

ORT: Final = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/"
ORT_DOC: Final = "https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html"
_DEPTHWISE: Final = f"{ORT}mlas/lib/qdwconv.cpp"
_QDQ: Final = f"{ORT}optimizer/qdq_transformer/selectors_actions/qdq_selector_action_transformer.cc"
_FLOAT: Final = "runs in float between dequantize and quantize"
_UNLESS: Final = "its input uses 0..127, or the CPU has VNNI (AVX-512 VNNI, AVX-VNNI or AMX)"
_MEASURED: Final = "tests/exporters/onnx/test_patterns.py"
_UNLESS_CONV: Final = f"{_UNLESS}, or it is depthwise"
_LINEAR: Final = OpRule(
    op=Op.LINEAR,
    support=Support.WRONG_UNLESS,
    unless=_UNLESS,
    granularities=CHANNEL_FIRST,
    saturates=Saturates.WITHOUT_VNNI,
    fused_activations=CLAMPS,
    source=ORT_DOC,
    measured=_MEASURED,
)

BACKEND: Final = Backend(
    name="onnxruntime",
    title="ONNX Runtime, CPU, QDQ models",
    engine=None,
    runtime="onnxruntime",
    isa=KernelIsa(vnni_flags=("avx_vnni", "avx512_vnni", "amx_int8"), source=f"{ORT}mlas/lib/platform.cpp"),
    rules=(
        *(replace(_LINEAR, op=op, unless=_UNLESS_CONV, source=_DEPTHWISE) for op in (Op.CONV1D, Op.CONV2D, Op.CONV3D)),
        OpRule(op=Op.CONV_TRANSPOSE1D, support=Support.UNSUPPORTED, source=ORT_DOC),
        OpRule(op=Op.CONV_TRANSPOSE2D, support=Support.UNSUPPORTED, source=ORT_DOC),
        _LINEAR,
        OpRule(op=Op.ADD, support=Support.EQUAL, fused_activations=CLAMPS, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.MUL, support=Support.EQUAL, fused_activations=CLAMPS, source=_QDQ, measured=_MEASURED),
        OpRule(
            op=Op.CAT,
            support=Support.EQUAL,
            fused_activations=CLAMPS,
            source=_QDQ,
            measured=_MEASURED,
        ),
        OpRule(op=Op.MAX_POOL, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.AVG_POOL, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.MEAN, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.INTERPOLATE, support=Support.EQUAL, note=_FLOAT, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.ACTIVATION, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.LAYOUT, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.SIGMOID, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.HARDSIGMOID, support=Support.EQUAL, note=_FLOAT, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.TANH, support=Support.EQUAL, note=_FLOAT, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.SOFTMAX, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.HARDSWISH, support=Support.EQUAL, note=_FLOAT, source=_QDQ, measured=_MEASURED),
        OpRule(op=Op.LEAKY_RELU, support=Support.EQUAL, source=_QDQ, measured=_MEASURED),
    ),
    source=ORT_DOC,
)
