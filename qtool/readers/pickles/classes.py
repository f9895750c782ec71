"""What the class of a module says of its op, by name alone: torch's own ones, float, quantized and in training."""

from __future__ import annotations

import re
from typing import Final

from qtool.types import Op

_CONVOLUTION: Final = re.compile(
    r"(?:Lazy)?Conv(?P<transposed>Transpose)?(?:Bn)?(?:Add)?(?P<relu>ReLU)?(?P<dims>[123])d"
)
_LINEAR: Final = re.compile(r"(?:Lazy|NonDynamicallyQuantizable)?Linear(?:Bn1d)?(?P<activation>ReLU|LeakyReLU|Tanh)?")
_ACTIVATIONS: Final = {"ReLU": "relu", "LeakyReLU": "leaky_relu", "Tanh": "tanh"}
_OTHERS: Final = {
    "Hardswish": Op.HARDSWISH, "LeakyReLU": Op.LEAKY_RELU, "Sigmoid": Op.SIGMOID, "Hardsigmoid": Op.HARDSIGMOID,
    "Tanh": Op.TANH, "Softmax": Op.SOFTMAX, "ReLU": Op.ACTIVATION, "ReLU6": Op.ACTIVATION,
}  # fmt: skip
_OPS: Final = {op.value: op for op in Op}
_OF_TORCH: Final = "torch."


def op_of_class(cls: str) -> Op | None:
    """Return the op of a class of torch, and None of all others.

    Example:
        >>> op_of_class("torch.ao.nn.intrinsic.quantized.modules.conv_relu.ConvReLU2d").value
        'conv2d'
    """
    name = _name(cls)
    convolution = _CONVOLUTION.fullmatch(name)
    if convolution:
        words = f"conv_transpose{convolution['dims']}d" if convolution["transposed"] else f"conv{convolution['dims']}d"
        return _OPS.get(words)
    return Op.LINEAR if _LINEAR.fullmatch(name) else _OTHERS.get(name)


def activation_of_class(cls: str) -> str | None:
    """Return the activation that is fused into a class of torch.

    Example:
        >>> activation_of_class("torch.ao.nn.intrinsic.quantized.modules.linear_relu.LinearReLU")
        'relu'
    """
    name = _name(cls)
    convolution, linear = _CONVOLUTION.fullmatch(name), _LINEAR.fullmatch(name)
    if convolution:
        return "relu" if convolution["relu"] else None
    return _ACTIVATIONS.get(linear["activation"] or "") if linear else None


def _name(cls: str) -> str:
    return cls.rpartition(".")[2] if cls.startswith(_OF_TORCH) else ""
