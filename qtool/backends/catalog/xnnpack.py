"""xnnpack: ExecuTorch's CPU delegate; signed activations, kernels that widen to int16 and are exact everywhere."""

from __future__ import annotations

from typing import Final

from qtool.backends.catalog.aten_ops import CLAMPS
from qtool.backends.record import Backend, OpRule, Support
from qtool.types import Dtype, Granularity, Op

EXECUTORCH: Final = "https://github.com/pytorch/executorch/blob/main/backends/xnnpack/"
_GEMM: Final = f"{EXECUTORCH}partition/config/gemm_configs.py"
_GENERIC: Final = f"{EXECUTORCH}partition/config/generic_node_configs.py"
_PER_CHANNEL_FIRST: Final = (Granularity.CHANNEL, Granularity.TENSOR)

BACKEND: Final = Backend(
    name="xnnpack",
    title="XNNPACK in ExecuTorch, phones and desktops",
    engine=None,
    runtime="executorch",
    activation_dtype=Dtype.INT8,
    rules=(
        OpRule(
            op=Op.CONV1D,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=_GEMM,
        ),
        OpRule(
            op=Op.CONV2D,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=_GEMM,
        ),
        OpRule(
            op=Op.LINEAR,
            support=Support.EQUAL,
            granularities=_PER_CHANNEL_FIRST,
            fused_activations=CLAMPS,
            source=_GEMM,
        ),
        OpRule(op=Op.ADD, support=Support.EQUAL, fused_activations=CLAMPS, source=_GENERIC),
        OpRule(op=Op.MUL, support=Support.EQUAL, fused_activations=CLAMPS, source=_GENERIC),
        OpRule(
            op=Op.CAT, support=Support.EQUAL, fused_activations=CLAMPS, shares_input_parameters=True, source=_GENERIC
        ),
        OpRule(op=Op.MAX_POOL, support=Support.EQUAL, shares_input_parameters=True, source=_GENERIC),
        OpRule(op=Op.AVG_POOL, support=Support.UNSUPPORTED, source=_GENERIC),
        OpRule(op=Op.MEAN, support=Support.EQUAL, source=_GENERIC),
        OpRule(op=Op.ACTIVATION, support=Support.EQUAL, shares_input_parameters=True, source=_GENERIC),
        OpRule(op=Op.LAYOUT, support=Support.EQUAL, shares_input_parameters=True, source=_GENERIC),
    ),
    source=f"{EXECUTORCH}quantizer/xnnpack_quantizer.py",
)
