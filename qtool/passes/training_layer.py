"""Where a layer of the training graph runs: its product, batch norm, activation and fake-quantize at one place.

The points it uses belong to the graph, where eval mode finds them too; a layer only knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from qtool.numerics.coded import Coded
from qtool.numerics.corrected_layer import FoldedTensors, run_corrected_layer
from qtool.numerics.layer import Kept, Layer, LayerTensors, compute_dtype, run_layer
from qtool.numerics.product import Convolution, Linear
from qtool.passes.match import conv_geometry
from qtool.passes.training_point import clamped, coded_at
from qtool.types import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from qtool.numerics.grid import Bounds, Grid
    from qtool.numerics.layer import LayerResult
    from qtool.numerics.product import Product
    from qtool.passes.batch_norm_point import BatchNormPoint
    from qtool.passes.points import ActivationPoint
    from qtool.passes.weight_point import WeightPoint

CHEAP_PRODUCTS = 600
"""Mode `mixed` computes a result again where at most this many products make one element: what 3x3 over 64 channels
takes. Chosen by measurement: docs/training.md, "memory"."""


class LayerPoints(NamedTuple):
    """What a layer is made of, besides its product and activation.

    Attributes:
        weight: fake-quantizes the weight; None where it stays float.
        batch_norm: follows the product; None without one.
        activation: fake-quantizes the result; None where it stays float.
    """

    weight: WeightPoint | None
    batch_norm: BatchNormPoint | None
    activation: ActivationPoint | None


class TrainingLayer(nn.Module):
    """A convolution or linear layer of the training graph, with what follows it.

    Args:
        product: the convolution or linear op.
        bounds: of the activation.
        points: its fake-quantizes and batch norm.

    Attributes:
        memory: what it keeps for backward.
    """

    def __init__(self, product: Product, bounds: Bounds, points: LayerPoints) -> None:
        super().__init__()
        self.product = product
        self.bounds = bounds
        self.points = points  # a tuple, so that torch does not take them for parts of this module
        self.memory = Memory.COMPRESSED

    def forward(
        self,
        x: Coded | Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *batch_norm: Tensor | None,
    ) -> Coded:
        """Return the layer's result, on its grid where that is known.

        Args:
            x: the input.
            weight: in the layout of the product.
            bias: (C,) or None.
            batch_norm: gamma, beta, running mean, running variance and counter, where there is a batch norm.
        """
        x = x if isinstance(x, Coded) else Coded(x)
        norm = _BatchNormTensors.of(*batch_norm) if batch_norm else None
        weight_point, norm_point, point = self.points
        is_quantizing = any(each is not None and each.is_quantizing for each in (weight_point, point))
        if not is_quantizing and x.codes is None:
            return self._in_float(x.values, weight, bias, norm)
        layer = Layer(
            product=self.product,
            bounds=self.bounds,
            eps=None if norm_point is None else norm_point.eps,
            kept=self._kept(weight.shape),
        )
        run = self._step(layer, x, weight, bias, norm)
        result = run(None if point is None else point.grid)
        if norm is not None and norm_point is not None:
            assert result.mean is not None
            assert result.variance is not None
            norm_point.follow(result.coded.values, result.mean, result.variance, *norm.followed)
        if point is None or not point.is_quantizing or point.learns_scale:
            return coded_at(point, result.coded.values)
        point.observe_range(result.low, result.high, lambda: _without_grid(run))
        return result.coded

    def _in_float(self, x: Tensor, weight: Tensor, bias: Tensor | None, norm: _BatchNormTensors | None) -> Coded:
        """Return what the float model computes, in torch's own ops."""
        _, norm_point, point = self.points
        dtype = compute_dtype(x)  # ATen's own op of all convolutions is none that autocast knows
        z = self.product.forward(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
        if norm is not None and norm_point is not None:
            z = norm_point(z, *norm)
        return coded_at(point, clamped(z, self.bounds))

    def _step(
        self, layer: Layer, x: Coded, weight: Tensor, bias: Tensor | None, norm: _BatchNormTensors | None
    ) -> Callable[[Grid | None], LayerResult]:
        """Return what computes the layer, once it is told the grid of the result."""
        point, norm_point, _ = self.points
        if norm is None or norm_point is None:
            plain = LayerTensors(*_rounded(point, weight), bias)
            return lambda grid: run_layer(layer, x, plain, grid)
        running = norm_point.statistics_used(norm.mean, norm.var)
        if point is None or not point.folds_in_training:
            apart = LayerTensors(*_rounded(point, weight), bias, norm.gamma, norm.beta, running)
            return lambda grid: run_layer(layer, x, apart, grid)
        rounded = _rounded(point, point.folded_in_training(weight, norm.gamma))
        folded = FoldedTensors(weight, *rounded, bias, norm.gamma, norm.beta, point.folded_var, running)
        return lambda grid: run_corrected_layer(layer, x, folded, grid)

    def _kept(self, weight_shape: torch.Size) -> Kept:
        is_cheap = self.product.num_products(weight_shape) <= CHEAP_PRODUCTS
        again = self.memory is Memory.RECOMPUTE or (self.memory is Memory.MIXED and is_cheap)
        return Kept(codes=self.memory is not Memory.STANDARD, result=not again)

    def extra_repr(self) -> str:
        """Return what it does in a line."""
        return f"{self.product}, {self.bounds}, {self.memory.value}"


def product_of(node: Node) -> Product:
    """Return the product that a convolution or linear node computes."""
    if node.target is torch.ops.aten.linear.default:
        return Linear()
    geometry = conv_geometry(node)
    return Convolution(
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        output_padding=geometry.output_padding or (0,) * len(geometry.stride),
        groups=geometry.groups,
        transposed=geometry.is_transposed,
    )


class _BatchNormTensors(NamedTuple):
    gamma: Tensor | None
    beta: Tensor | None
    mean: Tensor
    var: Tensor
    num_batches: Tensor | None

    @staticmethod
    def of(*tensors: Tensor | None) -> _BatchNormTensors:
        gamma, beta, mean, var, num_batches = tensors
        assert mean is not None
        assert var is not None
        return _BatchNormTensors(gamma, beta, mean, var, num_batches)

    @property
    def followed(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The running statistics and their counter."""
        return self.mean, self.var, self.num_batches


def _rounded(point: WeightPoint | None, weight: Tensor) -> tuple[Tensor, Grid | None]:
    """Return the weight and the grid that the layer rounds it to; it is rounded already where its scale learns."""
    if point is None:
        return weight, None
    return (point.fake_quantize(weight), None) if point.learns_scale else (weight, point.grid)


@torch.no_grad()
def _without_grid(run: Callable[[Grid | None], LayerResult]) -> Tensor:
    """Return the layer's result before it is rounded to the grid."""
    return run(None).coded.values
