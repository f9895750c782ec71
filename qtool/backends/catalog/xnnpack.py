"""xnnpack: ExecuTorch's CPU delegate; signed activations, and kernels that widen to int16 and are exact everywhere.

What the delegate does not take in int8 (a mean over other axes than the last two, a max pool whose stride is larger
than its window, a view) runs in float between dequantize and quantize: slower, but not wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qtool.backends.catalog.aten_ops import CHANNEL_FIRST, CLAMPS
from qtool.backends.record import Backend, OpRule, Support
from qtool.types import Dtype, Op

EXECUTORCH: Final = "https://github.com/pytorch/executorch/blob/main/backends/xnnpack/"
XNNPACK: Final = "https://github.com/google/XNNPACK/blob/master/src/"
_GEMM: Final = f"{XNNPACK}qs8-qc8w-gemm/gen/qs8-qc8w-gemm-4x8c8-minmax-fp32-avx2.c"
_NODES: Final = f"{EXECUTORCH}partition/config/generic_node_configs.py"
_GEMMS: Final = f"{EXECUTORCH}partition/config/gemm_configs.py"
_TRANSPOSED: Final = "left in float: releases took the scales from the wrong axis of the weight"
_FLOAT_ONLY: Final = "the delegate takes it in float only"
_LINEAR: Final = OpRule(
    op=Op.LINEAR, support=Support.EQUAL, granularities=CHANNEL_FIRST, fused_activations=CLAMPS, source=_GEMM
)

BACKEND: Final = Backend(
    name="xnnpack",
    title="XNNPACK in ExecuTorch, phones and desktops",
    engine=None,
    runtime="executorch",
    activation_dtype=Dtype.INT8,
    rules=(
        replace(_LINEAR, op=Op.CONV1D),
        replace(_LINEAR, op=Op.CONV2D),
        OpRule(op=Op.CONV3D, support=Support.UNSUPPORTED, note="convolutions of two dimensions only", source=_GEMMS),
        OpRule(op=Op.CONV_TRANSPOSE1D, support=Support.UNSUPPORTED, note=_TRANSPOSED, source=_GEMMS),
        OpRule(op=Op.CONV_TRANSPOSE2D, support=Support.UNSUPPORTED, note=_TRANSPOSED, source=_GEMMS),
        _LINEAR,
        OpRule(op=Op.ADD, support=Support.EQUAL, fused_activations=("relu",), source=_NODES),
        OpRule(op=Op.MUL, support=Support.EQUAL, source=_NODES),
        OpRule(op=Op.CAT, support=Support.EQUAL, source=_NODES),
        OpRule(op=Op.MAX_POOL, support=Support.EQUAL, source=_NODES),
        OpRule(
            op=Op.AVG_POOL,
            support=Support.UNSUPPORTED,
            note=f"{_FLOAT_ONLY}; pooling to 1x1 is a mean",
            source=_NODES,
        ),
        OpRule(op=Op.MEAN, support=Support.EQUAL, source=_NODES),
        OpRule(op=Op.INTERPOLATE, support=Support.UNSUPPORTED, note=_FLOAT_ONLY, source=_NODES),
        OpRule(op=Op.ACTIVATION, support=Support.EQUAL, source=_NODES),
        OpRule(op=Op.LAYOUT, support=Support.EQUAL, source=_NODES),
        *(
            OpRule(op=op, support=Support.UNSUPPORTED, note=_FLOAT_ONLY, source=_NODES)
            for op in (Op.SIGMOID, Op.HARDSIGMOID, Op.TANH, Op.SOFTMAX, Op.HARDSWISH, Op.LEAKY_RELU)
        ),
    ),
    source=f"{EXECUTORCH}quantizer/xnnpack_quantizer.py",
)
