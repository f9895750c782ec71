"""Where a layer of the training graph runs: its product, batch norm, activation and fake-quantize at one place.

The points it uses belong to the graph, where eval mode finds them too; a layer only knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from qtool.numerics.coded import Coded
from qtool.numerics.layer import Kept, Layer, LayerTensors, run_layer
from qtool.passes.training_point import clamped, coded_at
from qtool.types import Memory

if TYPE_CHECKING:
    from qtool.numerics.grid import Bounds
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
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        mean: Tensor | None = None,
        var: Tensor | None = None,
        num_batches: Tensor | None = None,
    ) -> Coded:
        """Return the layer's result, on its grid where that is known."""
        x = x if isinstance(x, Coded) else Coded(x)
        norm, point = self.points.batch_norm, self.points.activation
        weight_grid = self.points.weight.grid if self.points.weight is not None else None
        grid = point.grid if point is not None else None
        if weight_grid is None and grid is None:
            z = self.product.forward(x.values, weight, bias)
            if norm is not None:
                assert mean is not None
                assert var is not None
                z = norm(z, gamma, beta, mean, var, num_batches)
            return coded_at(point, clamped(z, self.bounds))
        running = None
        if norm is not None:
            assert mean is not None
            assert var is not None
            running = norm.statistics_used(mean, var)
        tensors = LayerTensors(weight, weight_grid, bias, gamma, beta, running)
        layer = Layer(
            product=self.product,
            bounds=self.bounds,
            eps=None if norm is None else norm.eps,
            kept=self._kept(weight.shape),
        )
        result = run_layer(layer, x, tensors, grid)
        if point is not None:
            point.observe_range(result.low, result.high, lambda: _ungridded(layer, x, tensors))
        if norm is not None:
            assert mean is not None
            assert var is not None
            assert result.mean is not None
            assert result.variance is not None
            norm.follow(result.coded.values, result.mean, result.variance, mean, var, num_batches)
        return result.coded

    def _kept(self, weight_shape: torch.Size) -> Kept:
        is_cheap = self.product.num_products(weight_shape) <= CHEAP_PRODUCTS
        again = self.memory is Memory.RECOMPUTE or (self.memory is Memory.MIXED and is_cheap)
        return Kept(codes=self.memory is not Memory.STANDARD, result=not again)

    def extra_repr(self) -> str:
        """Return what it does in a line."""
        return f"{self.product}, {self.bounds}, {self.memory.value}"


@torch.no_grad()
def _ungridded(layer: Layer, x: Coded, tensors: LayerTensors) -> Tensor:
    """Return the layer's result before it is rounded to the grid."""
    return run_layer(layer, x, tensors, None).coded.values
