"""A call of every op that is known to keep its input for backward, and of ops that are known not to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tests.numerics.coded_samples import SIGNED, random_coded

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

Sample = tuple[Any, tuple[Any, ...]]


def input_keeping_samples(**how: Any) -> dict[str, Sample]:
    """Return op and arguments by the op's name; `how` goes to `random_coded`."""
    dtype = how.get("dtype", torch.float32)

    def image(seed: int = 0) -> Any:
        return random_coded(2, 4, 6, 6, seed=seed, **how)

    def plain(*shape: int, seed: int = 9) -> Any:
        return random_coded(*shape, dtype=dtype, seed=seed)

    def weight(*shape: int) -> Any:
        return random_coded(*shape, dtype=dtype, grid=SIGNED, seed=3).values

    volume = (2, 3, 4, 4, 4)
    binary = (aten.mul.Tensor, aten.div.Tensor, aten.maximum.default, aten.minimum.default, aten.pow.Tensor_Tensor)
    unary = (
        *(aten.silu, aten.gelu, aten.hardswish, aten.hardsigmoid, aten.elu, aten.celu, aten.selu, aten.softplus),
        *(aten.mish, aten.log_sigmoid, aten.relu6, aten.hardtanh, aten.softshrink, aten.hardshrink, aten.abs),
        *(aten.square, aten.log, aten.erf, aten.sin, aten.cos),
    )
    samples: list[Sample] = [
        *((op, (image(), image(1))) for op in binary),
        *((op.default, (image(),)) for op in unary),
        (aten.pow.Tensor_Scalar, (image(), 3)),
        (aten.addcmul.default, (image(2), image(), image(1))),
        (aten.leaky_relu.default, (image(), 0.1)),
        (aten.prelu.default, (image(), weight(4))),
        (aten.glu.default, (image(), 1)),
        (aten.clamp.default, (image(), -1.0, 1.0)),
        (aten.clamp_min.default, (image(), -1.0)),
        (aten.clamp_max.default, (image(), 1.0)),
        (aten.threshold.default, (image(), 0.5, 0.0)),
        (aten.matmul.default, (image(), image(1))),
        (aten.mm.default, (plain(3, 4), plain(4, 5))),
        (aten.mv.default, (plain(3, 4), plain(4))),
        (aten.bmm.default, (plain(2, 3, 4), plain(2, 4, 5, seed=5))),
        (aten.addmm.default, (weight(5), plain(3, 4), plain(4, 5))),
        (aten.baddbmm.default, (weight(2, 3, 5), plain(2, 3, 4), plain(2, 4, 5))),
        (aten.einsum.default, ("bchw,bcxw->bchx", [image(), image(1)])),
        (aten.cdist.default, (plain(2, 3, 4), plain(2, 5, 4, seed=7))),
        (aten.avg_pool1d.default, (plain(2, 3, 9), [2], [2], [1], True)),
        (aten.avg_pool2d.default, (image(), [3, 3], [2, 2], [1, 1], True, False)),
        (aten.avg_pool3d.default, (plain(*volume), [2, 2, 2])),
        (aten.adaptive_avg_pool1d.default, (plain(2, 3, 9), [2])),
        (aten.adaptive_avg_pool2d.default, (image(), [4, 3])),
        (aten.adaptive_avg_pool3d.default, (plain(*volume), [2, 3, 2])),
        (aten.max_pool1d.default, (plain(2, 3, 9), [2])),
        (aten.max_pool2d.default, (image(), [3, 3], [2, 2], [1, 1])),
        (aten.max_pool3d.default, (plain(*volume), [2, 2, 2])),
        (aten.adaptive_max_pool1d.default, (plain(2, 3, 9), [2])),
        (aten.adaptive_max_pool2d.default, (image(), [2, 2])),
        (aten.adaptive_max_pool3d.default, (plain(*volume), [2, 2, 2])),
        (aten.pad.default, (image(), [1, 1, 2, 0], "reflect")),
        (aten.grid_sampler.default, (image(), plain(2, 3, 3, 2), 0, 0, False)),
        (aten.amax.default, (image(), [2])),
        (aten.amin.default, (image(), [2])),
        (aten.var.correction, (image(), [2])),
        (aten.std.correction, (image(), [2])),
        (aten.prod.dim_int, (image(), 2)),
        (aten.logsumexp.default, (image(), [1])),
        (aten.linalg_vector_norm.default, (image(), 2, [2])),
        (aten.layer_norm.default, (image(), [6], weight(6), weight(6))),
        (aten.group_norm.default, (image(), 2, weight(4), weight(4))),
        (aten.rms_norm.default, (image(), [6], weight(6))),
    ]
    return {str(op): (op, args) for op, args in samples}


def other_samples() -> dict[str, Sample]:
    """Return calls that keep nothing of their input, by a name."""
    image, other = random_coded(2, 4, 6, 6), random_coded(2, 4, 6, 6, seed=1)
    add: Callable[..., Any] = aten.add.Tensor
    return {
        "add": (add, (image, other)),
        "sub": (aten.sub.Tensor, (image, other)),
        "product with a number": (aten.mul.Tensor, (image, 2.0)),
        "quotient by a number": (aten.div.Tensor, (image, 2.0)),
        "mean": (aten.mean.dim, (image, [2, 3])),
        "sum": (aten.sum.dim_IntList, (image, [2])),
        "cat": (aten.cat.default, ([image, other], 1)),
        "global average pool": (aten.adaptive_avg_pool2d.default, (image, [1, 1])),
        "global average pool of a volume": (aten.adaptive_avg_pool3d.default, (random_coded(1, 2, 3, 3, 3), [1, 1, 1])),
        "zero padding": (aten.pad.default, (image, [1, 1])),
        "circular padding": (aten.pad.default, (image, [1, 1, 1, 1], "circular")),
        "bilinear": (aten.upsample_bilinear2d.vec, (image, [12, 12], False, None)),
        "bicubic": (aten.upsample_bicubic2d.vec, (image, [12, 12], False, None)),
        "sigmoid": (aten.sigmoid.default, (image,)),
        "tanh": (aten.tanh.default, (image,)),
        "softmax": (aten.softmax.int, (image, 1)),
        "relu": (aten.relu.default, (image,)),
        "exp": (aten.exp.default, (image,)),
    }
