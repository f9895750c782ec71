"""Ops whose outputs have a range that is known before any data, and the scale and zero point that follow.

Source: `torch.ao.quantization.fx`'s fixed parameters for sigmoid, softmax and tanh; torch's int8 kernels of sigmoid and
tanh (aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp) have no others.
"""

from __future__ import annotations

from typing import Final

from qtool.types import FixedParameters, Op

FIXED_RANGES: Final[dict[Op, tuple[int, int]]] = {
    Op.SIGMOID: (0, 1),
    Op.HARDSIGMOID: (0, 1),
    Op.SOFTMAX: (0, 1),
    Op.TANH: (-1, 1),
}
"""Lower and upper bound of each such op's output."""


def fixed_parameters(op: Op, qmin: int, qmax: int) -> FixedParameters | None:
    """Return scale and zero point of an op's output, or None where they depend on data.

        scale      = (high - low) / (qmax - qmin + 1)        a power of two, so values decode exactly
        zero_point = qmin - low / scale

    The upper bound itself, which those functions only approach, has no code: 1.0 is clamped to 1 - scale.

    Args:
        op: the op.
        qmin: smallest code of the output.
        qmax: largest code; there must be a power of two of codes.

    Example:
        sigmoid, 0..255: 1/256 and 0; 0..127: 1/128 and 0; -128..127: 1/256 and -128.
        tanh, 0..255: 1/128 and 128; 0..127: 1/64 and 64; -128..127: 1/128 and 0.
    """
    if op not in FIXED_RANGES:
        return None
    low, high = FIXED_RANGES[op]
    num_codes = qmax - qmin + 1
    return FixedParameters(scale=(high - low) / num_codes, zero_point=qmin - low * num_codes // (high - low))
