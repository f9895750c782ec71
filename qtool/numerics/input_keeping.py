"""Which ATen ops keep their input for backward, and how the gradient of the busiest is had without running them again.

Found by running each op and looking at what autograd saved: tests/numerics/test_input_keeping.py does so and holds
the set to it. What is not in it keeps nothing of its input (add, mean, cat, bilinear upsampling), its output (sigmoid,
tanh, softmax, relu), or is no function of its arguments alone: dropout, and norms that update running statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qtool.numerics.strides import Strides

aten = torch.ops.aten

SAVES_INPUT: frozenset[Any] = frozenset(
    {
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.maximum.default,
        aten.minimum.default,
        aten.addcmul.default,
        aten.matmul.default,
        aten.mm.default,
        aten.mv.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.einsum.default,
        aten.cdist.default,
        aten.silu.default,
        aten.gelu.default,
        aten.hardswish.default,
        aten.hardsigmoid.default,
        aten.leaky_relu.default,
        aten.prelu.default,
        aten.elu.default,
        aten.celu.default,
        aten.selu.default,
        aten.softplus.default,
        aten.mish.default,
        aten.log_sigmoid.default,
        aten.glu.default,
        aten.relu6.default,
        aten.hardtanh.default,
        aten.clamp.default,
        aten.clamp_min.default,
        aten.clamp_max.default,
        aten.threshold.default,
        aten.softshrink.default,
        aten.hardshrink.default,
        aten.abs.default,
        aten.square.default,
        aten.pow.Tensor_Scalar,
        aten.pow.Tensor_Tensor,
        aten.log.default,
        aten.erf.default,
        aten.sin.default,
        aten.cos.default,
        aten.avg_pool1d.default,
        aten.avg_pool2d.default,
        aten.avg_pool3d.default,
        aten.adaptive_avg_pool1d.default,
        aten.adaptive_avg_pool2d.default,
        aten.adaptive_avg_pool3d.default,
        aten.max_pool1d.default,
        aten.max_pool2d.default,
        aten.max_pool3d.default,
        aten.adaptive_max_pool1d.default,
        aten.adaptive_max_pool2d.default,
        aten.adaptive_max_pool3d.default,
        aten.pad.default,
        aten.grid_sampler.default,
        aten.amax.default,
        aten.amin.default,
        aten.var.correction,
        aten.std.correction,
        aten.prod.dim_int,
        aten.logsumexp.default,
        aten.linalg_vector_norm.default,
        aten.layer_norm.default,
        aten.group_norm.default,
        aten.rms_norm.default,
    }
)
"""Ops that keep an input, at least for some of their arguments."""


def keeps_input(op: Any, args: Sequence[Any]) -> bool:  # noqa: ANN401 - an ATen op
    """Return whether autograd would keep an input of `op`, called with these arguments.

    Example:
        A product with a number keeps nothing; one of two tensors keeps both.
    """
    exception = _UNLESS.get(op)
    return op in SAVES_INPUT and not (exception and exception(args))


def _has_number(args: Sequence[Any]) -> bool:
    return len(args) > 1 and isinstance(args[1], (int, float))


def _is_global(args: Sequence[Any]) -> bool:
    # ATen takes the mean then, whose gradient needs no input.
    return len(args) > 1 and set(args[1]) == {1}


def _pads_with_number(args: Sequence[Any]) -> bool:
    return (args[2] if len(args) > 2 else "constant") in ("constant", "circular")


_UNLESS: dict[Any, Callable[[Sequence[Any]], bool]] = {
    aten.mul.Tensor: _has_number,
    aten.div.Tensor: _has_number,
    aten.adaptive_avg_pool2d.default: _is_global,
    aten.adaptive_avg_pool3d.default: _is_global,
    aten.pad.default: _pads_with_number,
}


class Formula(NamedTuple):
    """The gradient of an op from its arguments, in ATen's own words.

    Attributes:
        reads: tells from which tensor arguments need a gradient which of them are read.
        gradient: called with the incoming gradient and the arguments (a Strides for a tensor that is not read);
            returns the gradients of the tensor arguments, in order.
    """

    reads: Callable[[Sequence[bool]], list[bool]]
    gradient: Callable[..., tuple[Tensor | None, ...]]


def _product(grad: Tensor, a: Tensor | Strides, b: Tensor | Strides) -> tuple[Tensor | None, ...]:
    # Broadcast dimensions are summed by autograd, as they are behind ATen's own formula.
    return (
        grad * b if isinstance(b, Tensor) else None,
        grad * a if isinstance(a, Tensor) else None,
    )


def _leaky_relu(grad: Tensor, x: Tensor, slope: float = 0.01) -> tuple[Tensor | None, ...]:
    return (aten.leaky_relu_backward(grad, x, slope, False),)


def _of_one(backward: Any) -> Callable[..., tuple[Tensor | None, ...]]:  # noqa: ANN401 - an ATen op
    return lambda grad, x, *args, **kwargs: (backward(grad, x, *args, **kwargs),)


def _avg_pool(backward: Any) -> Callable[..., tuple[Tensor | None, ...]]:  # noqa: ANN401 - an ATen op
    def gradient(
        grad: Tensor,
        x: Strides,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> tuple[Tensor | None, ...]:
        sizes = ([n] if isinstance(n, int) else n for n in (kernel_size, stride, padding))
        return (backward(grad, x.untouched(), *sizes, ceil_mode, count_include_pad, divisor_override),)

    return gradient


def _adaptive(backward: Any) -> Callable[..., tuple[Tensor | None, ...]]:  # noqa: ANN401 - an ATen op
    return lambda grad, x, output_size: (backward(grad, x.untouched()),)


def _reads_other(needs_grad: Sequence[bool]) -> list[bool]:
    return list(reversed(needs_grad))


def _reads_all(needs_grad: Sequence[bool]) -> list[bool]:
    return [True] * len(needs_grad)


def _reads_none(needs_grad: Sequence[bool]) -> list[bool]:
    return [False] * len(needs_grad)


FORMULAS: dict[Any, Formula] = {
    aten.mul.Tensor: Formula(_reads_other, _product),
    aten.silu.default: Formula(_reads_all, _of_one(aten.silu_backward.default)),
    aten.gelu.default: Formula(_reads_all, _of_one(aten.gelu_backward.default)),
    aten.hardswish.default: Formula(_reads_all, _of_one(aten.hardswish_backward.default)),
    aten.hardsigmoid.default: Formula(_reads_all, _of_one(aten.hardsigmoid_backward.default)),
    aten.leaky_relu.default: Formula(_reads_all, _leaky_relu),
    aten.avg_pool2d.default: Formula(_reads_none, _avg_pool(aten.avg_pool2d_backward.default)),
    aten.avg_pool3d.default: Formula(_reads_none, _avg_pool(aten.avg_pool3d_backward.default)),
    aten.adaptive_avg_pool2d.default: Formula(_reads_none, _adaptive(aten._adaptive_avg_pool2d_backward.default)),
    aten.adaptive_avg_pool3d.default: Formula(_reads_none, _adaptive(aten._adaptive_avg_pool3d_backward.default)),
}
"""The gradient of an op that is not in here is had by running it again, with autograd looking on.

Source: tools/autograd/derivatives.yaml of torch 2.14; the tests hold each to autograd's bits.
"""
